#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/cell_pool.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "tier/entry_table.h"
#include "tier/tier.h"

namespace headrace {

// Samples in memory, in cells: see CellPool. Computes a checksum on insert; the engine can have it
// checked. Every call is synchronous: Insert() and Read() copy.
//
// Memory: the capacity, 4 bytes a cell, and about 120 bytes an entry.
//
// Thread safety, ownership, shutdown: as Tier. Find() and the end of a reference take only the lock
// of one of sixteen shards.
class RamTier final : public Tier {
 public:
  // `capacity_bytes` is rounded down to whole units.
  //
  // Errors: InvalidArgument    capacity below one unit, or units that CellPool::Make() refuses
  //         ResourceExhausted  the system refuses the memory
  static Result<std::unique_ptr<RamTier>> Make(std::uint64_t capacity_bytes,
                                               std::uint64_t unit_bytes);
  ~RamTier() override;

  [[nodiscard]] std::string name() const override { return "RAM"; }
  [[nodiscard]] bool in_memory() const override { return true; }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return unit_bytes_; }
  [[nodiscard]] EntryRef Find(SampleId sample) override;
  [[nodiscard]] std::optional<std::span<const std::byte>> View(const EntryRef& ref,
                                                               std::uint64_t offset,
                                                               std::uint64_t size) const override;
  void CopyOut(const EntryRef& ref, std::uint64_t offset, std::span<std::byte> to) const override;
  Result<std::uint64_t> Check(const EntryRef& ref) override;
  [[nodiscard]] std::size_t BufferBytes(const EntryRef& ref) const override { return ref.bytes(); }
  void Read(const EntryRef& ref, std::uint64_t deadline, std::span<std::byte> buffer,
            std::stop_token stop, DoneRead done) override;
  void Insert(SampleId sample, std::vector<std::span<const std::byte>> parts, Done done) override;
  void Erase(SampleId sample) override;
  [[nodiscard]] std::vector<SampleId> Held() const override { return table_.Samples(); }
  [[nodiscard]] TierStats stats() const override;

 protected:
  void ReleaseRef(void* entry) override;

 private:
  struct Entry : TierEntry {
    CellRun run = kNoCells;
  };

  RamTier(std::shared_ptr<CellPool> cells, std::uint64_t unit_bytes)
      : unit_bytes_(unit_bytes), cells_(std::move(cells)) {}

  Status InsertNow(SampleId sample, const std::vector<std::span<const std::byte>>& parts);
  Result<std::span<std::byte>> ReadNow(const EntryRef& ref, std::span<std::byte> buffer);
  void Free(std::unique_ptr<Entry> entry);

  // Erases a changed entry and counts it, once for all threads that find it.
  Status Corrupt(Entry& entry);

  const std::uint64_t unit_bytes_;
  const std::shared_ptr<CellPool> cells_;
  EntryTable<Entry> table_;
  std::atomic<std::uint64_t> inserts_ = 0;
  std::atomic<std::uint64_t> inserts_refused_ = 0;
  std::atomic<std::uint64_t> erased_ = 0;
  std::atomic<std::uint64_t> read_bytes_ = 0;
  std::atomic<std::uint64_t> written_bytes_ = 0;
  std::atomic<std::uint64_t> corrupt_ = 0;
  std::atomic<std::uint64_t> reads_failed_ = 0;
};

}  // namespace headrace
