#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tier/entry_table.h"
#include "tier/tier_journal.h"
#include "tier/unit_space.h"

namespace headrace {

// A sample in the data file of an SSD tier, with a record in its journal.
struct SsdEntry : TierEntry {
  std::uint64_t number = 0;  // in the journal
  std::vector<UnitRun> runs;
};

// The accounts of an SSD tier: units that are charged, units that are free, and entries that are
// erased but still in the journal. An insert charges its units before it takes them, so that it is
// certain to find room; the units of an erased entry are no longer charged, but free only after its
// erase record.
//
// Thread safety: none.
class SsdUnits {
 public:
  explicit SsdUnits(std::uint64_t capacity_units = 0, UnitSpace space = UnitSpace(0))
      : capacity_(capacity_units), space_(std::move(space)) {}

  [[nodiscard]] std::uint64_t charged() const { return charged_; }
  [[nodiscard]] std::uint64_t not_charged() const { return capacity_ - charged_; }
  // Bytes of the records of entries that were added and not dropped.
  [[nodiscard]] std::uint64_t live_bytes() const { return live_bytes_; }

  void Charge(std::uint64_t units) { charged_ += units; }
  // Of an insert that failed.
  void Uncharge(std::uint64_t units) { charged_ -= units; }

  // Takes and frees units of the file, as UnitSpace does.
  std::optional<std::vector<UnitRun>> Take(std::uint64_t units) { return space_.Take(units); }
  void Free(std::span<const UnitRun> runs) { space_.Free(runs); }

  // The journal has a record of an entry.
  void AddRecord(const SsdEntry& entry) { live_bytes_ += InsertRecordBytes(entry.runs.size()); }
  // An entry with a record has no references, so it is to be erased from the journal. Its `units`
  // are no longer charged.
  void Drop(std::unique_ptr<SsdEntry> entry, std::uint64_t units) {
    Uncharge(units);
    live_bytes_ -= InsertRecordBytes(entry->runs.size());
    dropped_.push_back(std::move(entry));
  }
  // The dropped entries: Free() their runs once the journal has their erase records.
  [[nodiscard]] std::vector<std::unique_ptr<SsdEntry>> TakeDropped() {
    return std::exchange(dropped_, {});
  }

 private:
  std::uint64_t capacity_;
  UnitSpace space_;
  std::uint64_t charged_ = 0;  // taken from space_, or not yet
  std::uint64_t live_bytes_ = 0;
  std::vector<std::unique_ptr<SsdEntry>> dropped_;
};

}  // namespace headrace
