#include "tier/testing/sim_tier.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/prng.h"
#include "base/units.h"

namespace headrace {
namespace {

// Reads go before inserts.
constexpr std::uint64_t kInsertDeadline = ~std::uint64_t{0};

}  // namespace

SimTier::SimTier(Executor& executor, SimTierOptions options)
    : executor_(executor), options_(std::move(options)) {
  MutexLock lock(mutex_);
  stats_.capacity_bytes = options_.capacity_bytes / options_.unit_bytes * options_.unit_bytes;
}

SimTier::~SimTier() {
  gate_.Close();
  MutexLock lock(mutex_);
  entries_.clear();
  HEADRACE_CHECK(used_units_ == 0);
}

bool SimTier::Draw(Fault fault, SampleId sample, double share) {
  const std::uint64_t time = times_[{fault, sample}]++;
  Prng prng(options_.seed, time, RandomStream::kSubstitute,
            Raw(sample) * 4 + static_cast<std::uint64_t>(fault));
  return prng.Uniform() < share;
}

Tier::EntryRef SimTier::Find(SampleId sample) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(sample);
  if (found == entries_.end()) return {};
  auto reference = std::make_unique<EntryPtr>(found->second);
  return MakeRef(reference.release(), found->second->bytes.size());
}

void SimTier::ReleaseRef(void* entry) {
  const std::unique_ptr<EntryPtr> reference(static_cast<EntryPtr*>(entry));
}

std::optional<std::span<const std::byte>> SimTier::View(const EntryRef& /*ref*/,
                                                        std::uint64_t /*offset*/,
                                                        std::uint64_t /*size*/) const {
  return std::nullopt;
}

void SimTier::CopyOut(const EntryRef& /*ref*/, std::uint64_t /*offset*/,
                      std::span<std::byte> /*to*/) const {
  HEADRACE_CHECK(in_memory());
}

Result<std::uint64_t> SimTier::Check(const EntryRef& /*ref*/) {
  HEADRACE_CHECK(in_memory());
  return 0;
}

std::size_t SimTier::BufferBytes(const EntryRef& ref) const { return RoundUp(ref.bytes(), 4096); }

void SimTier::Read(const EntryRef& ref, std::uint64_t deadline, std::span<std::byte> buffer,
                   std::stop_token stop, DoneRead done) {
  HEADRACE_CHECK(buffer.size() >= BufferBytes(ref));
  HEADRACE_CHECK(gate_.TryEnter());
  if (options_.deadline != nullptr) deadline = options_.deadline(deadline, ref.bytes());
  executor_.Submit(deadline, [this, entry = *static_cast<const EntryPtr*>(ref.entry()), buffer,
                              stop = std::move(stop), done = std::move(done)]() mutable {
    Result<std::span<std::byte>> result = ReadStopped(entry->sample);
    if (!stop.stop_requested()) result = ReadNow(entry, buffer);
    entry = nullptr;  // The caller's reference is the last to hold its room.
    done(std::move(result));
    done = nullptr;  // Its captures must not outlive the tier.
    gate_.Leave();
  });
}

Result<std::span<std::byte>> SimTier::ReadNow(const EntryPtr& entry, std::span<std::byte> buffer) {
  MutexLock lock(mutex_);
  if (reads_fail_ || Draw(Fault::kReadFailed, entry->sample, options_.read_failed)) {
    ++stats_.reads_failed;
    Status status(StatusCode::kUnavailable,
                  "reading " + SampleText(entry->sample) + ": the simulated medium has failed");
    Degrade(status);
    Forget(*entry);
    return status;
  }
  stats_.read_bytes += entry->bytes.size();
  if (entry->corrupt) {
    ++stats_.reads_failed;
    const auto found = entries_.find(entry->sample);
    if (found != entries_.end() && found->second == entry) ++stats_.corrupt;
    Forget(*entry);
    return Changed(entry->sample, entry->bytes.size());
  }
  if (!entry->bytes.empty()) std::memcpy(buffer.data(), entry->bytes.data(), entry->bytes.size());
  return buffer.first(entry->bytes.size());
}

void SimTier::Degrade(const Status& why) {
  if (stats_.degraded) return;
  stats_.degraded = true;
  stats_.degraded_reason = why.message();
}

void SimTier::Forget(const Entry& entry) {
  const auto found = entries_.find(entry.sample);
  if (found != entries_.end() && found->second.get() == &entry) entries_.erase(found);
}

Status SimTier::Admit(SampleId sample, std::uint64_t bytes) {
  if (stats_.degraded) {
    ++stats_.inserts_failed;
    return Status(StatusCode::kUnavailable, stats_.degraded_reason);
  }
  const std::uint64_t free_bytes = stats_.capacity_bytes - used_units_ * unit_bytes();
  const std::uint64_t needed_bytes = Units(bytes) * unit_bytes();
  if (needed_bytes > free_bytes || Draw(Fault::kRefused, sample, options_.insert_refused)) {
    ++stats_.inserts_refused;
    return NoRoom(sample, needed_bytes, free_bytes);
  }
  return Status();
}

void SimTier::Insert(SampleId sample, TierParts parts, Done done) {
  const std::uint64_t bytes = BytesOf(parts);
  const auto insertion = std::make_shared<Insertion>();
  insertion->done.push_back(std::move(done));
  Status answer;
  bool begun = false;
  {
    MutexLock lock(mutex_);
    if (const auto found = inserting_.find(sample); found != inserting_.end()) {
      found->second->done.push_back(std::move(insertion->done.front()));
      return;
    }
    const bool there = entries_.contains(sample);
    if (!there) answer = Admit(sample, bytes);
    begun = !there && answer.ok();
    if (begun) {
      used_units_ += Units(bytes);
      stats_.used_bytes_peak =
          std::max(stats_.used_bytes_peak, std::uint64_t{used_units_ * unit_bytes()});
      insertion->entry = std::make_shared<Entry>(*this, sample, Units(bytes));
      insertion->parts = std::move(parts);
      inserting_[sample] = insertion;
      HEADRACE_CHECK(gate_.TryEnter());
    }
  }
  if (!begun) {
    insertion->done.front()(answer);
    return;
  }
  const std::uint64_t deadline =
      options_.deadline != nullptr ? options_.deadline(kInsertDeadline, bytes) : kInsertDeadline;
  executor_.Submit(deadline, [this, insertion] { Finish(insertion); });
}

void SimTier::Finish(const std::shared_ptr<Insertion>& insertion) {
  Status status;
  std::vector<Done> done;
  {
    MutexLock lock(mutex_);
    status = FinishLocked(*insertion);
    done = std::move(insertion->done);
    insertion->entry = nullptr;
  }
  for (const Done& each : done) each(status);
  done.clear();
  gate_.Leave();
}

Status SimTier::FinishLocked(Insertion& insertion) {
  const SampleId sample = insertion.entry->sample;
  if (insertion.cancelled) {
    return Status(StatusCode::kCancelled, "keeping " + SampleText(sample) + ": it was erased");
  }
  inserting_.erase(sample);
  if (inserts_fail_ || Draw(Fault::kInsertFailed, sample, options_.insert_failed)) {
    Status status(StatusCode::kUnavailable,
                  "keeping " + SampleText(sample) + ": the simulated medium has failed");
    ++stats_.inserts_failed;
    Degrade(status);
    return status;
  }
  for (const std::span<const std::byte> part : insertion.parts) {
    insertion.entry->bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  insertion.entry->corrupt = Draw(Fault::kCorrupt, sample, options_.corrupt);
  ++stats_.inserts;
  stats_.written_bytes += insertion.entry->bytes.size();
  entries_[sample] = insertion.entry;
  return Status();
}

void SimTier::Erase(SampleId sample) {
  MutexLock lock(mutex_);
  if (const auto found = inserting_.find(sample); found != inserting_.end()) {
    found->second->cancelled = true;
    inserting_.erase(found);
  }
  stats_.erased += entries_.erase(sample);
}

void SimTier::Corrupt(SampleId sample) {
  MutexLock lock(mutex_);
  entries_.at(sample)->corrupt = true;
}

std::vector<SampleId> SimTier::Held() const {
  MutexLock lock(mutex_);
  std::vector<SampleId> samples;
  for (const auto& [sample, entry] : entries_) samples.push_back(sample);
  return samples;
}

TierStats SimTier::stats() const {
  MutexLock lock(mutex_);
  TierStats stats = stats_;
  stats.entries = entries_.size();
  stats.used_bytes = used_units_ * unit_bytes();
  return stats;
}

}  // namespace headrace
