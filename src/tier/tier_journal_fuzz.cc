// Reads damaged journals. The checksums would reject nearly every random change at the first
// record, so most inputs describe records to write, also impossible ones, with correct checksums.
//
// Input: a byte that says whether the rest is a whole file (0x01); otherwise pieces of 12 bytes,
// each a record: kind (0: insert, with as many runs as an odd sample has; 1: erase; 2: 8 bytes as
// they are), sample, number, size in half units, runs of (first, count).

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "base/check.h"
#include "tier/tier_journal.h"

namespace {

using headrace::JournalContents;
using headrace::JournalEntry;
using headrace::JournalHeader;
using headrace::SampleId;
using headrace::UnitRun;

constexpr JournalHeader kHeader = {
    .unit_bytes = 4096, .capacity_units = 200, .dataset = {1, 2}, .generation = 3};
constexpr std::size_t kPieceBytes = 12;

std::vector<std::byte> Written(std::span<const std::uint8_t> input) {
  const auto first = headrace::EncodeJournalHeader(kHeader);
  std::vector<std::byte> file(first.begin(), first.end());
  for (; input.size() >= kPieceBytes; input = input.subspan(kPieceBytes)) {
    const std::uint64_t number = input[2];
    if (input[0] % 3 == 0) {
      JournalEntry entry = {number, SampleId{input[1]}, input[3] * std::uint64_t{2048}, 5, {}};
      for (std::size_t at = 4; at + 2 <= kPieceBytes && at < 4U + 2U * (input[1] % 5U); at += 2) {
        entry.runs.push_back({input[at], input[at + 1]});
      }
      headrace::EncodeInsert(kHeader, file.size(), entry, file);
    } else if (input[0] % 3 == 1) {
      headrace::EncodeErase(kHeader, file.size(), number, file);
    } else {
      const auto raw = std::as_bytes(input.subspan(4, 8));
      file.insert(file.end(), raw.begin(), raw.end());
    }
  }
  return file;
}

// The guarantees that users of the entries rely on.
void CheckContents(const JournalContents& contents, std::size_t file_bytes) {
  HEADRACE_CHECK(contents.valid_bytes <= file_bytes);
  std::map<SampleId, std::uint64_t> samples;
  std::uint64_t number_min = 0;
  for (const JournalEntry& entry : contents.live) {
    HEADRACE_CHECK(samples.emplace(entry.sample, entry.number).second);
    HEADRACE_CHECK(entry.number >= number_min && entry.number < contents.next_number);
    number_min = entry.number + 1;
    std::uint64_t units = 0;
    for (const UnitRun run : entry.runs) {
      HEADRACE_CHECK(run.count > 0);
      HEADRACE_CHECK(std::uint64_t{run.first} + run.count <= contents.header.capacity_units);
      units += run.count;
    }
    HEADRACE_CHECK(units > 0 && entry.bytes <= units * contents.header.unit_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  const bool whole_file = (data[0] & 1) != 0;
  const auto raw = std::as_bytes(rest);
  const std::vector<std::byte> file =
      whole_file ? std::vector<std::byte>(raw.begin(), raw.end()) : Written(rest);
  const auto contents = headrace::ParseJournal(file);
  HEADRACE_CHECK(contents.ok() || whole_file);
  if (!contents.ok()) return 0;
  CheckContents(contents.value(), file.size());
  // A valid prefix stays valid without the rest.
  const auto again = headrace::ParseJournal(std::span(file).first(contents.value().valid_bytes));
  HEADRACE_CHECK(again.ok() && again.value().live == contents.value().live);
  return 0;
}
