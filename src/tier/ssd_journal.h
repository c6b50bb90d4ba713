#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "headrace/status.h"
#include "tier/entry_table.h"
#include "tier/ssd_units.h"
#include "tier/tier_folder.h"

namespace headrace {

// Writes the records of an SSD tier's entries: numbers them, and rewrites the journal when the next
// records would make it larger than `slack_bytes` and than twice its live records.
//
// Thread safety: none. An entry must be in the table before the next call after its Insert(), or it
// is missing in a rewritten journal.
// Ownership: `folder` and `table` must outlive it.
class SsdJournal {
 public:
  SsdJournal(TierFolder& folder, const EntryTable<SsdEntry>& table, std::uint64_t slack_bytes,
             std::uint64_t next_number)
      : folder_(folder), table_(table), slack_bytes_(slack_bytes), next_number_(next_number) {}

  // Each returns as TierFolder::AppendInsert() does. `live_bytes` are SsdUnits::live_bytes().
  //
  // Errors: Unavailable  the disk failed, or is full, or the journal was removed
  Status Insert(SsdEntry& entry, std::uint64_t live_bytes);
  // Of entries that are not in the table.
  Status Erase(std::span<const std::unique_ptr<SsdEntry>> entries, std::uint64_t live_bytes);

 private:
  // Rewrites the journal, and returns true, if `bytes` more would exceed its limit.
  Result<bool> MakeRoom(std::uint64_t bytes, std::uint64_t live_bytes);

  TierFolder& folder_;
  const EntryTable<SsdEntry>& table_;
  const std::uint64_t slack_bytes_;
  std::uint64_t next_number_;
};

}  // namespace headrace
