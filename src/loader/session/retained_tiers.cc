#include "loader/session/retained_tiers.h"

#include <algorithm>
#include <utility>

namespace headrace {

void RetainedTiers::Put(std::string key, std::unique_ptr<Tier> tier) {
  const std::uint64_t bytes = tier->stats().capacity_bytes;
  if (bytes > bytes_max_) return;
  std::list<Entry> dropped;  // Outlives the lock: giving memory back takes its time.
  MutexLock lock(mutex_);
  dropped = DropTo(bytes_max_ - bytes);
  bytes_ += bytes;
  retained_.push_back({.key = std::move(key), .tier = std::move(tier), .bytes = bytes});
}

std::unique_ptr<Tier> RetainedTiers::Take(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(retained_.begin(), retained_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found == retained_.end()) return nullptr;
  std::unique_ptr<Tier> tier = std::move(found->tier);
  bytes_ -= found->bytes;
  retained_.erase(found);
  return tier;
}

void RetainedTiers::ShrinkTo(std::uint64_t bytes) {
  std::list<Entry> dropped;  // As in Put().
  MutexLock lock(mutex_);
  dropped = DropTo(bytes);
}

std::list<RetainedTiers::Entry> RetainedTiers::DropTo(std::uint64_t bytes) {
  std::list<Entry> dropped;
  while (bytes_ > bytes && !retained_.empty()) {
    bytes_ -= retained_.front().bytes;
    dropped.splice(dropped.end(), retained_, retained_.begin());
  }
  return dropped;
}

std::uint64_t RetainedTiers::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace headrace
