#include "tier/ssd_tier.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/process_id.h"

// The steps of an insert. A crash may end it after any step:
//
//   1. Insert() charges its units, so that it is certain to find room.
//   2. Pending erases are written to the journal; only then are their units free.
//   3. The payload is written to free units. No record refers to them, so any content is harmless.
//   4. The record is written. From here on a later run finds the entry.
//   5. Find() returns it, and its `done` is called.
//
// An erase undoes step 5 immediately, and step 4 when the next insert comes to step 2: an entry
// that is erased but still in the journal is intact, because its units were not used again.

namespace headrace {
namespace {

// Later than every read.
constexpr std::uint64_t kInsertDeadline = ~std::uint64_t{0};

Status CheckOptions(const SsdTierOptions& options) {
  const std::string what = "SSD tier '" + options.folder + "': ";
  const std::uint64_t unit = options.unit_bytes;
  if (unit < kTierBlock || !std::has_single_bit(unit)) {
    return InvalidArgument("{}units of {}, must be a power of two, {} at least", what,
                           FormatBytes(unit), FormatBytes(kTierBlock));
  }
  if (options.capacity_bytes < unit || options.capacity_bytes / unit > 0xffff'fffe) {
    return InvalidArgument(
        "{}got {}, must be at least one unit of {} and less than 2^32 - 1 of them", what,
        FormatBytes(options.capacity_bytes), FormatBytes(unit));
  }
  return Status();
}

std::array<std::uint64_t, 2> FingerprintOf(const std::string& dataset) {
  Hasher128 hasher;
  hasher.AddText(dataset);
  return hasher.Digest();
}

Status Cancelled(SampleId sample) {
  return Status(StatusCode::kCancelled, "keeping " + SampleText(sample) + ": it was erased");
}

}  // namespace

SsdTier::SsdTier(SsdTierOptions options, Executor& executor)
    : options_(std::move(options)),
      dataset_(FingerprintOf(options_.dataset)),
      pid_(ProcessId()),
      executor_(executor) {}

Result<std::unique_ptr<SsdTier>> SsdTier::Open(SsdTierOptions options, Executor& executor) {
  HEADRACE_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<SsdTier> tier(new SsdTier(std::move(options), executor));
  HEADRACE_RETURN_IF_ERROR(tier->Start());
  return tier;
}

Status SsdTier::Start() {
  TierFolderOptions folder;
  folder.path = options_.folder;
  folder.header.unit_bytes = options_.unit_bytes;
  const std::uint64_t capacity_units = options_.capacity_bytes / options_.unit_bytes;
  folder.header.capacity_units = capacity_units;
  folder.header.dataset = dataset_;
  folder.direct = options_.direct;
  folder.io = options_.io;
  TierFolderFound found;
  HEADRACE_ASSIGN_OR_RETURN(folder_, TierFolder::Open(std::move(folder), &found));
  note_ = std::move(found.note);
  MutexLock journal_lock(journal_mutex_);
  MutexLock lock(mutex_);
  journal_.emplace(*folder_, table_, options_.journal_slack_bytes, found.next_number);
  units_ = SsdUnits(capacity_units, std::move(found.space));
  stats_.capacity_bytes = capacity_units * unit_bytes();
  stats_.entries_inherited = found.entries.size();
  for (JournalEntry& each : found.entries) {
    auto entry = std::make_unique<SsdEntry>();
    entry->sample = each.sample;
    entry->bytes = each.bytes;
    entry->checksum = each.checksum;
    entry->number = each.number;
    entry->runs = std::move(each.runs);
    units_.Charge(Units(entry->bytes));
    units_.AddRecord(*entry);
    HEADRACE_CHECK(table_.Add(std::move(entry)) == nullptr);
  }
  stats_.used_bytes_peak = units_.charged() * unit_bytes();
  return Status();
}

SsdTier::~SsdTier() {
  gate_.Close();
  // It was never open; or this is a forked child, which must not write to its parent's journal.
  if (folder_ == nullptr || ProcessId() != pid_) return;
  MutexLock lock(journal_mutex_);
  // An erase that cannot be written now makes the entry come back in the next run.
  (void)JournalErased().ok();
  folder_->Sync();
}

Tier::EntryRef SsdTier::Find(SampleId sample) {
  SsdEntry* const entry = table_.Find(sample);
  if (entry == nullptr) return {};
  return MakeRef(entry, entry->bytes);
}

void SsdTier::ReleaseRef(void* entry) { Free(table_.Release(static_cast<SsdEntry*>(entry))); }

void SsdTier::Free(std::unique_ptr<SsdEntry> entry) {
  if (entry == nullptr) return;
  const std::uint64_t units = Units(entry->bytes);
  MutexLock lock(mutex_);
  units_.Drop(std::move(entry), units);
}

std::optional<std::span<const std::byte>> SsdTier::View(const EntryRef& /*ref*/,
                                                        std::uint64_t /*offset*/,
                                                        std::uint64_t /*size*/) const {
  return std::nullopt;
}

void SsdTier::CopyOut(const EntryRef& /*ref*/, std::uint64_t /*offset*/,
                      std::span<std::byte> /*to*/) const {
  HEADRACE_CHECK(in_memory());
}

Result<std::uint64_t> SsdTier::Check(const EntryRef& /*ref*/) {
  HEADRACE_CHECK(in_memory());
  return 0;
}

std::size_t SsdTier::BufferBytes(const EntryRef& ref) const {
  return RoundUp(ref.bytes(), kTierBlock);
}

void SsdTier::Read(const EntryRef& ref, std::uint64_t deadline, std::span<std::byte> buffer,
                   std::stop_token stop, DoneRead done) {
  HEADRACE_CHECK(buffer.size() >= BufferBytes(ref));
  HEADRACE_CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % kTierBlock == 0);
  HEADRACE_CHECK(gate_.TryEnter());  // A tier must not be called during its destruction.
  auto* const entry = static_cast<SsdEntry*>(ref.entry());
  executor_.Submit(
      deadline, [this, entry, buffer, stop = std::move(stop), done = std::move(done)]() mutable {
        done(stop.stop_requested() ? Result<std::span<std::byte>>(ReadStopped(entry->sample))
                                   : ReadNow(*entry, buffer));
        done = nullptr;  // Its captures must not outlive the tier.
        gate_.Leave();
      });
}

Result<std::span<std::byte>> SsdTier::ReadNow(SsdEntry& entry, std::span<std::byte> buffer) {
  const Result<std::uint64_t> got = folder_->data().Read(entry.runs, entry.bytes, buffer);
  Status status = got.status();
  bool changed = false;
  if (status.ok()) {
    const std::span<std::byte> bytes = buffer.first(entry.bytes);
    changed = got.value() < entry.bytes ||
              EntryChecksum(Hash64(bytes), entry.sample, entry.bytes, dataset_) != entry.checksum;
    if (!changed) {
      MutexLock lock(mutex_);
      stats_.read_bytes += entry.bytes;
      return bytes;
    }
    status = Changed(entry.sample, entry.bytes);
  } else {
    status = status.WithContext("reading " + SampleText(entry.sample));
  }
  Drop(entry);
  MutexLock lock(mutex_);
  ++stats_.reads_failed;
  if (!changed) Degrade(status);
  if (changed && !entry.corrupt.exchange(true)) ++stats_.corrupt;
  return status;
}

void SsdTier::Drop(SsdEntry& entry) {
  SsdEntry* const removed = table_.Remove(entry.sample, &entry);
  if (removed != nullptr) Free(table_.Release(removed));
}

void SsdTier::Degrade(const Status& why) {
  if (stats_.degraded) return;
  stats_.degraded = true;
  stats_.degraded_reason = why.message();
}

Status SsdTier::TakesNoMore() const {
  return Status(StatusCode::kUnavailable,
                "the tier accepts no more samples since it failed: " + stats_.degraded_reason);
}

void SsdTier::Insert(SampleId sample, TierParts parts, Done done) {
  const auto insertion = std::make_shared<Insertion>();
  insertion->sample = sample;
  insertion->bytes = BytesOf(parts);
  insertion->parts = std::move(parts);
  insertion->done.push_back(std::move(done));
  Status answer;
  bool begun = false;
  {
    MutexLock lock(mutex_);
    if (const auto found = inserting_.find(sample); found != inserting_.end()) {
      found->second->done.push_back(std::move(insertion->done.front()));
      return;
    }
    if (!table_.Has(sample)) {
      answer = Admit(insertion);
      begun = answer.ok();
    }
  }
  if (!begun) {
    insertion->done.front()(answer);
    return;
  }
  executor_.Submit(kInsertDeadline, [this, insertion] { RunInsert(insertion); });
}

Status SsdTier::Admit(const std::shared_ptr<Insertion>& insertion) {
  const SampleId sample = insertion->sample;
  if (stats_.degraded) {
    ++stats_.inserts_failed;
    return TakesNoMore().WithContext("keeping " + SampleText(sample));
  }
  const std::uint64_t units = Units(insertion->bytes);
  if (units > units_.not_charged()) {
    ++stats_.inserts_refused;
    return NoRoom(sample, units * unit_bytes(), units_.not_charged() * unit_bytes());
  }
  units_.Charge(units);
  stats_.used_bytes_peak = std::max(stats_.used_bytes_peak, units_.charged() * unit_bytes());
  inserting_[sample] = insertion;
  HEADRACE_CHECK(gate_.TryEnter());
  return Status();
}

Status SsdTier::MayGoOn(const Insertion& insertion) {
  MutexLock lock(mutex_);
  if (insertion.cancelled) return Cancelled(insertion.sample);
  return stats_.degraded ? TakesNoMore() : Status();
}

void SsdTier::RunInsert(const std::shared_ptr<Insertion>& insertion) {
  Status status = MayGoOn(*insertion);
  std::unique_ptr<SsdEntry> entry;
  if (status.ok()) {
    Result<std::unique_ptr<SsdEntry>> written = WritePayload(*insertion);
    status = written.status();
    if (status.ok()) entry = std::move(written).value();
  }
  std::vector<Done> tell;
  if (status.ok()) {
    // No rewrite of the journal may come between the record and the table: it would miss the entry.
    MutexLock lock(journal_mutex_);
    status = journal_->Insert(*entry, LiveBytes());
    tell = Settle(*insertion, std::move(entry), &status);
  } else {
    tell = Settle(*insertion, nullptr, &status);
  }
  for (const Done& done : tell) done(status);
  tell.clear();
  gate_.Leave();
}

Result<std::unique_ptr<SsdEntry>> SsdTier::WritePayload(const Insertion& insertion) {
  HEADRACE_ASSIGN_OR_RETURN(std::vector<UnitRun> runs, TakeRuns(Units(insertion.bytes)));
  const Result<std::uint64_t> hash = folder_->data().Write(runs, insertion.parts);
  if (!hash.ok()) {
    MutexLock lock(mutex_);
    units_.Free(runs);
    return hash.status();
  }
  auto entry = std::make_unique<SsdEntry>();
  entry->sample = insertion.sample;
  entry->bytes = insertion.bytes;
  entry->checksum = EntryChecksum(hash.value(), entry->sample, entry->bytes, dataset_);
  entry->runs = std::move(runs);
  return entry;
}

std::vector<Tier::Done> SsdTier::Settle(Insertion& insertion, std::unique_ptr<SsdEntry> entry,
                                        Status* status) {
  MutexLock lock(mutex_);
  const SampleId sample = insertion.sample;
  const auto found = inserting_.find(sample);
  if (found != inserting_.end() && found->second.get() == &insertion) inserting_.erase(found);
  const std::uint64_t units = Units(insertion.bytes);
  if (!status->ok()) {
    units_.Uncharge(units);
    if (status->code() == StatusCode::kUnavailable) {
      // The record may or may not be on disk: its units are not used again, and inserts stop.
      *status = status->WithContext("keeping " + SampleText(sample));
      ++stats_.inserts_failed;
      Degrade(*status);
    }
    return std::move(insertion.done);
  }
  units_.AddRecord(*entry);
  if (insertion.cancelled) {
    // The journal has the entry, so it needs an erase record.
    units_.Drop(std::move(entry), units);
    *status = Cancelled(sample);
  } else {
    ++stats_.inserts;
    stats_.written_bytes += insertion.bytes;
    HEADRACE_CHECK(table_.Add(std::move(entry)) == nullptr);
  }
  return std::move(insertion.done);
}

Result<std::vector<UnitRun>> SsdTier::TakeRuns(std::uint64_t units) {
  MutexLock journal_lock(journal_mutex_);
  // All of them, even if there is room: the best fitting gap may be among them.
  HEADRACE_RETURN_IF_ERROR(JournalErased());
  MutexLock lock(mutex_);
  std::optional<std::vector<UnitRun>> runs = units_.Take(units);
  if (runs.has_value()) return std::move(*runs);
  // The units were charged, so they are there, unless a failure withheld them.
  HEADRACE_CHECK(stats_.degraded);
  return TakesNoMore();
}

Status SsdTier::JournalErased() {
  std::vector<std::unique_ptr<SsdEntry>> erased;
  {
    MutexLock lock(mutex_);
    erased = units_.TakeDropped();
  }
  if (erased.empty()) return Status();
  Status status = journal_->Erase(erased, LiveBytes());
  MutexLock lock(mutex_);
  if (!status.ok()) {
    // Immediately: their units stay in use, so that charged units may be missing.
    Degrade(status);
    return status;
  }
  for (const std::unique_ptr<SsdEntry>& entry : erased) units_.Free(entry->runs);
  return Status();
}

std::uint64_t SsdTier::LiveBytes() const {
  MutexLock lock(mutex_);
  return units_.live_bytes();
}

void SsdTier::Erase(SampleId sample) {
  SsdEntry* entry = nullptr;
  {
    MutexLock lock(mutex_);
    if (const auto found = inserting_.find(sample); found != inserting_.end()) {
      found->second->cancelled = true;
      inserting_.erase(found);
    }
    entry = table_.Remove(sample);
    if (entry != nullptr) ++stats_.erased;
  }
  if (entry != nullptr) Free(table_.Release(entry));
}

TierStats SsdTier::stats() const {
  MutexLock lock(mutex_);
  TierStats stats = stats_;
  stats.entries = table_.size();
  stats.used_bytes = units_.charged() * unit_bytes();
  return stats;
}

}  // namespace headrace
