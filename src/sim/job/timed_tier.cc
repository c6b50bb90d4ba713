#include "sim/job/timed_tier.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {

TimedTier::TimedTier(SharedRate& rate, Options options)
    : rate_(rate), options_(std::move(options)) {
  stats_.capacity_bytes = options_.capacity_units * options_.unit_bytes;
}

TimedTier::~TimedTier() {
  HEADRACE_CHECK(erased_.empty());
  for (const auto& [sample, entry] : entries_) HEADRACE_CHECK(entry->refs == 0);
}

Tier::EntryRef TimedTier::Find(SampleId sample) {
  const auto found = entries_.find(Raw(sample));
  if (found == entries_.end()) return {};
  ++found->second->refs;
  return MakeRef(found->second.get(), found->second->bytes);
}

std::optional<std::span<const std::byte>> TimedTier::View(const EntryRef& /*ref*/,
                                                          std::uint64_t /*offset*/,
                                                          std::uint64_t /*size*/) const {
  return std::nullopt;
}

void TimedTier::CopyOut(const EntryRef& /*ref*/, std::uint64_t /*offset*/,
                        std::span<std::byte> /*to*/) const {
  HEADRACE_CHECK(false);  // Only for tiers in memory.
}

Result<std::uint64_t> TimedTier::Check(const EntryRef& /*ref*/) {
  return Status(StatusCode::kInvalidArgument, "only for tiers in memory");
}

void TimedTier::TakeTime(std::uint64_t bytes, std::function<void()> done) {
  stats_.read_bytes += bytes;
  rate_.Transfer(options_.user, options_.scale * static_cast<double>(bytes), std::move(done));
}

void TimedTier::Read(const EntryRef& ref, std::uint64_t /*deadline*/, std::span<std::byte> buffer,
                     std::stop_token /*stop*/, DoneRead done) {
  const std::uint64_t bytes = ref.bytes();
  TakeTime(bytes, [buffer, bytes, done = std::move(done)] { done(buffer.first(bytes)); });
}

void TimedTier::Insert(SampleId sample, std::vector<std::span<const std::byte>> parts, Done done) {
  if (entries_.contains(Raw(sample))) return done(Status());
  std::uint64_t bytes = 0;
  for (const std::span<const std::byte> part : parts) bytes += part.size();
  const std::uint64_t units = Units(bytes);
  if (units > options_.capacity_units - used_units_) {
    ++stats_.inserts_refused;
    return done(ResourceExhausted("tier {}: {} of {} units are used, {} are needed", options_.name,
                                  used_units_, options_.capacity_units, units));
  }
  used_units_ += units;
  stats_.used_bytes_peak = std::max(stats_.used_bytes_peak, used_units_ * options_.unit_bytes);
  ++stats_.inserts;
  stats_.written_bytes += bytes;
  entries_.emplace(Raw(sample), std::make_unique<Entry>(Entry{.bytes = bytes, .units = units}));
  done(Status());
}

void TimedTier::Erase(SampleId sample) {
  const auto found = entries_.find(Raw(sample));
  if (found == entries_.end()) return;
  std::unique_ptr<Entry> entry = std::move(found->second);
  entries_.erase(found);
  ++stats_.erased;
  if (entry->refs == 0) {
    used_units_ -= entry->units;
    return;
  }
  const void* const key = entry.get();
  erased_.emplace(key, std::move(entry));
}

void TimedTier::ReleaseRef(void* entry) {
  auto* const released = static_cast<Entry*>(entry);
  if (--released->refs > 0) return;
  const auto found = erased_.find(released);
  if (found == erased_.end()) return;
  used_units_ -= released->units;
  erased_.erase(found);
}

std::vector<SampleId> TimedTier::Held() const {
  std::vector<SampleId> held;
  held.reserve(entries_.size());
  for (const auto& [sample, entry] : entries_) held.push_back(SampleId{sample});
  return held;
}

TierStats TimedTier::stats() const {
  TierStats stats = stats_;
  stats.entries = entries_.size();
  stats.used_bytes = used_units_ * options_.unit_bytes;
  return stats;
}

}  // namespace headrace
