#include "tier/tier_journal.h"

#include <algorithm>
#include <string>

#include "base/hash.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr JournalHeader kHeader = {
    .unit_bytes = 4096, .capacity_units = 100, .dataset = {7, 8}, .generation = 99};

JournalEntry EntryOf(std::uint64_t number, std::uint64_t sample, std::vector<UnitRun> runs) {
  std::uint64_t units = 0;
  for (const UnitRun run : runs) units += run.count;
  return {number, SampleId{sample}, units * 4096 - 5, sample * 1001, std::move(runs)};
}

// A file as a tier writes it.
class File {
 public:
  explicit File(const JournalHeader& header = kHeader) : header_(header) {
    const auto first = EncodeJournalHeader(header);
    bytes_.assign(first.begin(), first.end());
  }
  File& Insert(const JournalEntry& entry) {
    EncodeInsert(header_, bytes_.size(), entry, bytes_);
    return *this;
  }
  File& Erase(std::uint64_t number) {
    EncodeErase(header_, bytes_.size(), number, bytes_);
    return *this;
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] JournalContents Parse() const { return ParseJournal(bytes_).value(); }

 private:
  const JournalHeader header_;
  std::vector<std::byte> bytes_;
};

const JournalEntry kFirst = EntryOf(1, 10, {{0, 3}});
const JournalEntry kSecond = EntryOf(2, 11, {{5, 1}, {9, 4}});
const JournalEntry kThird = EntryOf(5, 12, {{99, 1}});

TEST(TierJournalTest, WhatWasInsertedAndNotErasedIsLive) {
  File file;
  file.Insert(kFirst).Insert(kSecond).Erase(1).Insert(kThird);
  const JournalContents contents = file.Parse();
  EXPECT_EQ(contents.header, kHeader);
  EXPECT_EQ(contents.live, (std::vector<JournalEntry>{kSecond, kThird}));
  EXPECT_EQ(contents.next_number, 6U);
  EXPECT_EQ(contents.valid_bytes, file.bytes().size());
  EXPECT_EQ(file.bytes().size(),
            64 + InsertRecordBytes(1) + InsertRecordBytes(2) + 24 + InsertRecordBytes(1));
}

TEST(TierJournalTest, AnEraseIsOfOneEntryNotOfItsSample) {
  File file;
  const JournalEntry again = EntryOf(2, 10, {{50, 3}});
  file.Insert(kFirst).Insert(again).Erase(1).Erase(77);
  EXPECT_EQ(file.Parse().live, std::vector<JournalEntry>{again});
}

TEST(TierJournalTest, TheLastEntryOfASampleIsLive) {
  File file;
  const JournalEntry again = EntryOf(2, 10, {{50, 3}});
  file.Insert(kFirst).Insert(again);
  EXPECT_EQ(file.Parse().live, std::vector<JournalEntry>{again});
  file.Erase(2);
  EXPECT_TRUE(file.Parse().live.empty());
}

TEST(TierJournalTest, CutAnywhereItIsReadUpToTheLastWholeRecord) {
  File file;
  file.Insert(kFirst).Insert(kSecond).Erase(1).Insert(kThird);
  const std::vector<std::byte>& bytes = file.bytes();
  const std::vector<std::size_t> ends = {64, 120, 184, 208, 264};
  const std::vector<std::vector<JournalEntry>> live = {
      {}, {kFirst}, {kFirst, kSecond}, {kSecond}, {kSecond, kThird}};
  ASSERT_EQ(bytes.size(), ends.back());
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto contents = ParseJournal(std::span(bytes).first(size));
    ASSERT_EQ(contents.ok(), size >= 64) << size;
    if (!contents.ok()) {
      EXPECT_EQ(contents.status().code(), StatusCode::kDataLoss);
      continue;
    }
    const auto whole = std::upper_bound(ends.begin(), ends.end(), size) - ends.begin() - 1;
    EXPECT_EQ(contents.value().valid_bytes, ends.at(static_cast<std::size_t>(whole)));
    EXPECT_EQ(contents.value().live, live.at(static_cast<std::size_t>(whole)));
  }
}

TEST(TierJournalTest, NoFlippedBitPasses) {
  File file;
  file.Insert(kFirst).Insert(kSecond).Erase(1).Insert(kThird);
  const std::vector<std::size_t> ends = {64, 120, 184, 208, 264};
  for (std::size_t bit = 0; bit < file.bytes().size() * 8; ++bit) {
    std::vector<std::byte> bytes = file.bytes();
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto contents = ParseJournal(bytes);
    ASSERT_EQ(contents.ok(), bit >= kJournalHeaderBytes * 8) << bit;
    if (!contents.ok()) continue;
    const auto hit = std::upper_bound(ends.begin(), ends.end(), bit / 8) - 1;
    EXPECT_EQ(contents.value().valid_bytes, *hit) << bit;
  }
}

TEST(TierJournalTest, ARecordIsOfItsFileAndPlace) {
  JournalHeader other = kHeader;
  other.generation = 100;
  File file;
  file.Insert(kFirst);
  File stale(other);
  stale.Insert(kFirst);
  // A record of an older file, at its own offset.
  File mixed;
  mixed.bytes().insert(mixed.bytes().end(), stale.bytes().begin() + 64, stale.bytes().end());
  EXPECT_TRUE(mixed.Parse().live.empty());
  // A record of this file, at another offset.
  File moved;
  moved.Erase(7);
  moved.bytes().insert(moved.bytes().end(), file.bytes().begin() + 64, file.bytes().end());
  EXPECT_TRUE(moved.Parse().live.empty());
  EXPECT_EQ(moved.Parse().valid_bytes, 64 + kEraseRecordBytes);
}

TEST(TierJournalTest, RecordsThatCanNotBeEndTheJournalWhateverTheirChecksums) {
  JournalEntry past = EntryOf(9, 1, {{98, 3}});
  JournalEntry overflow = EntryOf(9, 1, {{0xffff'ffff, 2}});
  JournalEntry empty = EntryOf(9, 1, {{1, 1}, {5, 0}});
  JournalEntry none = {.number = 9, .sample = SampleId{1}, .bytes = 5, .runs = {}};
  JournalEntry units = EntryOf(9, 1, {{1, 2}});
  units.bytes = 100;
  JournalEntry old = EntryOf(1, 1, {{20, 1}});
  JournalEntry last = EntryOf(~std::uint64_t{0}, 1, {{20, 1}});
  for (const JournalEntry& entry : {past, overflow, empty, none, units, old, last}) {
    File file;
    file.Insert(kFirst);
    const std::size_t end = file.bytes().size();
    file.Insert(entry).Insert(kThird);
    EXPECT_EQ(file.Parse().valid_bytes, end);
    EXPECT_EQ(file.Parse().live, std::vector<JournalEntry>{kFirst});
  }
}

TEST(TierJournalTest, AnotherVersionIsSaidToBeSo) {
  File file;
  file.bytes()[8] = std::byte{2};
  EXPECT_EQ(ParseJournal(file.bytes()).status().code(), StatusCode::kFailedPrecondition);
  file.bytes()[0] = std::byte{2};
  EXPECT_EQ(ParseJournal(file.bytes()).status().code(), StatusCode::kDataLoss);
}

// Folders outlive programs: a change here is a new version.
TEST(TierJournalTest, TheFormatIsFrozen) {
  File file;
  file.Insert(kFirst).Insert(kSecond).Erase(1);
  EXPECT_EQ(Hash64(file.bytes()), 9'819'980'666'645'178'116U);
  EXPECT_EQ(EntryChecksum(1, SampleId{2}, 3, {4, 5}), 12'184'642'811'809'142'191U);
}

TEST(TierJournalTest, AChecksumIsOfBytesSampleSizeAndDataset) {
  const std::uint64_t sum = EntryChecksum(1, SampleId{2}, 3, {4, 5});
  EXPECT_NE(sum, EntryChecksum(0, SampleId{2}, 3, {4, 5}));
  EXPECT_NE(sum, EntryChecksum(1, SampleId{0}, 3, {4, 5}));
  EXPECT_NE(sum, EntryChecksum(1, SampleId{2}, 0, {4, 5}));
  EXPECT_NE(sum, EntryChecksum(1, SampleId{2}, 3, {0, 5}));
  EXPECT_NE(sum, EntryChecksum(1, SampleId{2}, 3, {4, 0}));
}

}  // namespace
}  // namespace headrace
