#include "tier/ssd_journal.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

class SsdJournalTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRecord = InsertRecordBytes(1);

  // What a tier that opens the folder finds.
  TierFolderFound Open() {
    folder_ = nullptr;
    TierFolderOptions options;
    options.path = files_.folder() + "/tier";
    options.header = {.unit_bytes = 4096, .capacity_units = 100, .dataset = {7, 8}};
    options.direct = false;
    TierFolderFound found;
    auto opened = TierFolder::Open(std::move(options), &found);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    folder_ = std::move(opened).value();
    return found;
  }
  // The numbers of the entries that a tier finds.
  std::vector<std::uint64_t> Found() {
    std::vector<std::uint64_t> numbers;
    for (const JournalEntry& entry : Open().entries) numbers.push_back(entry.number);
    return numbers;
  }

  static std::unique_ptr<SsdEntry> Entry(std::uint32_t sample) {
    auto entry = std::make_unique<SsdEntry>();
    entry->sample = SampleId{sample};
    entry->bytes = 100;
    entry->runs = {{.first = sample, .count = 1}};
    return entry;
  }

  TempFiles files_;
  std::unique_ptr<TierFolder> folder_;
  EntryTable<SsdEntry> table_;
};

TEST_F(SsdJournalTest, EntriesAreNumberedAndErasedByNumber) {
  Open();
  SsdJournal journal(*folder_, table_, 1000, /*next_number=*/5);
  std::vector<std::unique_ptr<SsdEntry>> erased;
  erased.push_back(Entry(1));
  ASSERT_TRUE(journal.Insert(*erased[0], 0).ok());
  const auto kept = Entry(2);
  ASSERT_TRUE(journal.Insert(*kept, kRecord).ok());
  ASSERT_TRUE(journal.Erase(erased, kRecord).ok());
  EXPECT_EQ(Found(), std::vector<std::uint64_t>{6});
}

TEST_F(SsdJournalTest, ALongJournalIsRewrittenFromTheTable) {
  Open();
  const std::uint64_t before = folder_->journal_bytes();
  SsdJournal journal(*folder_, table_, before + 2 * kRecord, /*next_number=*/0);
  std::vector<std::unique_ptr<SsdEntry>> erased;
  erased.push_back(Entry(1));
  ASSERT_TRUE(journal.Insert(*erased[0], 0).ok());
  auto entry = Entry(2);
  ASSERT_TRUE(journal.Insert(*entry, 0).ok());
  EXPECT_EQ(table_.Add(std::move(entry)), nullptr);
  EXPECT_EQ(folder_->journal_bytes(), before + 2 * kRecord);
  ASSERT_TRUE(journal.Erase(erased, 0).ok());
  EXPECT_EQ(folder_->journal_bytes(), before + kRecord);
  EXPECT_EQ(Found(), std::vector<std::uint64_t>{1});
}

TEST_F(SsdJournalTest, LiveRecordsMayTakeHalfOfTheJournal) {
  Open();
  SsdJournal journal(*folder_, table_, /*slack_bytes=*/0, /*next_number=*/0);
  const auto entry = Entry(1);
  // Not in the table: a rewrite would lose it.
  ASSERT_TRUE(journal.Insert(*entry, 10 * kRecord).ok());
  const auto other = Entry(2);
  ASSERT_TRUE(journal.Insert(*other, 10 * kRecord).ok());
  EXPECT_EQ(Found(), (std::vector<std::uint64_t>{0, 1}));
}

}  // namespace
}  // namespace headrace
