#include "tier/ssd_journal.h"

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

JournalEntry RecordOf(const SsdEntry& entry) {
  return {entry.number, entry.sample, entry.bytes, entry.checksum, entry.runs};
}

}  // namespace

Status SsdJournal::Insert(SsdEntry& entry, std::uint64_t live_bytes) {
  HEADRACE_RETURN_IF_ERROR(MakeRoom(InsertRecordBytes(entry.runs.size()), live_bytes).status());
  entry.number = next_number_++;
  return folder_.AppendInsert(RecordOf(entry));
}

Status SsdJournal::Erase(std::span<const std::unique_ptr<SsdEntry>> entries,
                         std::uint64_t live_bytes) {
  HEADRACE_ASSIGN_OR_RETURN(const bool rewritten,
                            MakeRoom(entries.size() * kEraseRecordBytes, live_bytes));
  if (rewritten) return Status();  // The new journal does not contain them.
  std::vector<std::uint64_t> numbers;
  numbers.reserve(entries.size());
  for (const std::unique_ptr<SsdEntry>& entry : entries) numbers.push_back(entry->number);
  return folder_.AppendErases(numbers);
}

Result<bool> SsdJournal::MakeRoom(std::uint64_t bytes, std::uint64_t live_bytes) {
  const std::uint64_t bytes_max = std::max(slack_bytes_, 2 * (kJournalHeaderBytes + live_bytes));
  if (folder_.journal_bytes() + bytes <= bytes_max) return false;
  std::vector<JournalEntry> live;
  table_.ForEach([&live](const SsdEntry& entry) { live.push_back(RecordOf(entry)); });
  std::ranges::sort(live, {}, &JournalEntry::number);
  HEADRACE_RETURN_IF_ERROR(folder_.Rewrite(live));
  return true;
}

}  // namespace headrace
