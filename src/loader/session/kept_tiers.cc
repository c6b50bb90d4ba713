#include "loader/session/kept_tiers.h"

#include <algorithm>
#include <utility>

namespace headrace {

void KeptTiers::Put(std::string key, std::unique_ptr<Tier> tier) {
  const std::uint64_t bytes = tier->stats().capacity_bytes;
  if (bytes > bytes_max_) return;
  std::list<Kept> dropped;  // Outlives the lock: giving memory back takes its time.
  MutexLock lock(mutex_);
  dropped = DropTo(bytes_max_ - bytes);
  bytes_ += bytes;
  kept_.push_back({.key = std::move(key), .tier = std::move(tier), .bytes = bytes});
}

std::unique_ptr<Tier> KeptTiers::Take(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found == kept_.end()) return nullptr;
  std::unique_ptr<Tier> tier = std::move(found->tier);
  bytes_ -= found->bytes;
  kept_.erase(found);
  return tier;
}

void KeptTiers::ShrinkTo(std::uint64_t bytes) {
  std::list<Kept> dropped;  // As in Put().
  MutexLock lock(mutex_);
  dropped = DropTo(bytes);
}

std::list<KeptTiers::Kept> KeptTiers::DropTo(std::uint64_t bytes) {
  std::list<Kept> dropped;
  while (bytes_ > bytes && !kept_.empty()) {
    bytes_ -= kept_.front().bytes;
    dropped.splice(dropped.end(), kept_, kept_.begin());
  }
  return dropped;
}

std::uint64_t KeptTiers::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace headrace
