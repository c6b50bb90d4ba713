#include "tier/ram_tier.h"

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"
#include "tier/tier_text.h"

namespace headrace {
namespace {

std::uint64_t ChecksumOf(const TierParts& parts) {
  if (parts.size() == 1) return Hash64(parts.front());
  Hasher64 hasher;
  for (const std::span<const std::byte> part : parts) hasher.Add(part);
  return hasher.Digest();
}

}  // namespace

Result<std::unique_ptr<RamTier>> RamTier::Make(std::uint64_t capacity_bytes,
                                               std::uint64_t unit_bytes) {
  if (unit_bytes == 0 || capacity_bytes < unit_bytes) {
    return InvalidArgument("RAM tier: got {}, must be at least one unit of {}",
                           FormatBytes(capacity_bytes), FormatBytes(unit_bytes));
  }
  Result<std::shared_ptr<CellPool>> cells = CellPool::Make(capacity_bytes / unit_bytes, unit_bytes);
  if (!cells.ok()) return cells.status().WithContext("RAM tier");
  return std::unique_ptr<RamTier>(new RamTier(std::move(cells).value(), unit_bytes));
}

RamTier::~RamTier() {
  for (const SampleId sample : table_.Samples()) Erase(sample);
}

Tier::EntryRef RamTier::Find(SampleId sample) {
  Entry* const entry = table_.Find(sample);
  if (entry == nullptr) return {};
  return MakeRef(entry, entry->bytes);
}

void RamTier::ReleaseRef(void* entry) { Free(table_.Release(static_cast<Entry*>(entry))); }

void RamTier::Free(std::unique_ptr<Entry> entry) {
  if (entry != nullptr) cells_->Release(entry->run);
}

std::optional<std::span<const std::byte>> RamTier::View(const EntryRef& ref, std::uint64_t offset,
                                                        std::uint64_t size) const {
  HEADRACE_CHECK(size <= ref.bytes() && offset <= ref.bytes() - size);
  return cells_->View(static_cast<const Entry*>(ref.entry())->run, offset, size);
}

void RamTier::CopyOut(const EntryRef& ref, std::uint64_t offset, std::span<std::byte> to) const {
  HEADRACE_CHECK(to.size() <= ref.bytes() && offset <= ref.bytes() - to.size());
  cells_->CopyOut(static_cast<const Entry*>(ref.entry())->run, offset, to);
}

Result<std::uint64_t> RamTier::Check(const EntryRef& ref) {
  Entry& entry = *static_cast<Entry*>(ref.entry());
  std::uint64_t checksum = 0;
  if (const auto view = cells_->View(entry.run, 0, entry.bytes); view.has_value()) {
    checksum = Hash64(*view);
  } else {
    Hasher64 hasher;
    cells_->VisitBytes(entry.run, 0, entry.bytes,
                       [&hasher](std::span<const std::byte> piece) { hasher.Add(piece); });
    checksum = hasher.Digest();
  }
  if (checksum != entry.checksum) return Corrupt(entry);
  return checksum;
}

Status RamTier::Corrupt(Entry& entry) {
  if (Entry* const removed = table_.Remove(entry.sample, &entry); removed != nullptr) {
    Free(table_.Release(removed));
  }
  if (!entry.corrupt.exchange(true)) ++corrupt_;
  return Changed(entry.sample, entry.bytes);
}

void RamTier::Read(const EntryRef& ref, std::uint64_t /*deadline*/, std::span<std::byte> buffer,
                   std::stop_token stop, DoneRead done) {
  if (stop.stop_requested()) {
    done(ReadStopped(static_cast<const Entry*>(ref.entry())->sample));
    return;
  }
  done(ReadNow(ref, buffer));
}

Result<std::span<std::byte>> RamTier::ReadNow(const EntryRef& ref, std::span<std::byte> buffer) {
  HEADRACE_CHECK(buffer.size() >= ref.bytes());
  Entry& entry = *static_cast<Entry*>(ref.entry());
  const std::span<std::byte> bytes = buffer.first(entry.bytes);
  cells_->CopyOut(entry.run, 0, bytes);
  read_bytes_ += entry.bytes;
  if (Hash64(bytes) == entry.checksum) return bytes;
  ++reads_failed_;
  return Corrupt(entry);
}

void RamTier::Insert(SampleId sample, std::vector<std::span<const std::byte>> parts, Done done) {
  done(InsertNow(sample, parts));
}

Status RamTier::InsertNow(SampleId sample, const TierParts& parts) {
  if (table_.Has(sample)) return Status();
  const std::uint64_t bytes = BytesOf(parts);
  const std::uint64_t units = Units(bytes);
  auto entry = std::make_unique<Entry>();
  const auto wanted = static_cast<std::uint32_t>(units);
  if (units > cells_->capacity_units() || !cells_->Take({&wanted, 1}, {&entry->run, 1})) {
    ++inserts_refused_;
    const CellStats cells = cells_->stats();
    return NoRoom(sample, units * unit_bytes_,
                  (cells.capacity_units - cells.used_units) * unit_bytes_);
  }
  entry->sample = sample;
  entry->bytes = bytes;
  entry->checksum = ChecksumOf(parts);
  std::uint64_t offset = 0;
  for (const std::span<const std::byte> part : parts) {
    cells_->CopyIn(entry->run, offset, part);
    offset += part.size();
  }
  // Another thread may have inserted the same sample first.
  std::unique_ptr<Entry> second = table_.Add(std::move(entry));
  if (second == nullptr) {
    ++inserts_;
    written_bytes_ += bytes;
  }
  Free(std::move(second));
  return Status();
}

void RamTier::Erase(SampleId sample) {
  Entry* const entry = table_.Remove(sample);
  if (entry == nullptr) return;
  ++erased_;
  Free(table_.Release(entry));
}

TierStats RamTier::stats() const {
  const CellStats cells = cells_->stats();
  TierStats stats;
  stats.capacity_bytes = cells.capacity_units * unit_bytes_;
  stats.used_bytes = cells.used_units * unit_bytes_;
  stats.used_bytes_peak = cells.used_units_peak * unit_bytes_;
  stats.entries = table_.size();
  stats.inserts = inserts_;
  stats.inserts_refused = inserts_refused_;
  stats.erased = erased_;
  stats.read_bytes = read_bytes_;
  stats.written_bytes = written_bytes_;
  stats.corrupt = corrupt_;
  stats.reads_failed = reads_failed_;
  return stats;
}

}  // namespace headrace
