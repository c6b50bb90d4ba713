#include "tier/entry_table.h"

#include <map>
#include <set>
#include <string>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

struct Entry : TierEntry {};

std::unique_ptr<Entry> TableEntryOf(std::uint64_t sample, std::uint64_t bytes) {
  auto entry = std::make_unique<Entry>();
  entry->sample = SampleId{sample};
  entry->bytes = bytes;
  return entry;
}

TEST(EntrySlotsTest, DoesAsAMapDoesHoweverSamplesCollide) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed, 0, RandomStream::kOrder);
    // All bits but a few are skipped: most samples collide.
    EntrySlots<Entry> slots(seed % 2 == 0 ? 4 : 58);
    std::map<std::uint64_t, std::unique_ptr<Entry>> model;
    for (int step = 0; step < 3000; ++step) {
      const std::uint64_t sample = prng.Below(300) << (seed % 3 * 20);
      const auto found = model.find(sample);
      ASSERT_EQ(slots.Find(SampleId{sample}), found == model.end() ? nullptr : found->second.get());
      if (found == model.end()) {
        model[sample] = TableEntryOf(sample, 0);
        ASSERT_TRUE(slots.Insert(model[sample].get()));
      } else if (prng.Below(2) == 0) {
        ASSERT_FALSE(slots.Insert(found->second.get()));
      } else {
        slots.Erase(SampleId{sample});
        model.erase(found);
      }
      ASSERT_EQ(slots.size(), model.size());
    }
    std::set<std::uint64_t> visited;
    slots.ForEach([&visited](const Entry& entry) { visited.insert(Raw(entry.sample)); });
    EXPECT_EQ(visited.size(), model.size());
    for (const auto& [sample, entry] : model) {
      EXPECT_EQ(slots.Find(SampleId{sample}), entry.get());
    }
  }
}

TEST(EntryTableTest, AnEntryLivesAsLongAsSomebodyRefersToIt) {
  EntryTable<Entry> table;
  ASSERT_EQ(table.Add(TableEntryOf(1, 10)), nullptr);
  Entry* const found = table.Find(SampleId{1});
  ASSERT_NE(found, nullptr);
  Entry* const removed = table.Remove(SampleId{1});
  EXPECT_EQ(removed, found);
  EXPECT_EQ(table.Find(SampleId{1}), nullptr);
  EXPECT_EQ(table.Release(removed), nullptr);
  EXPECT_EQ(found->bytes, 10U);
  EXPECT_EQ(table.Release(found).get(), found);
}

TEST(EntryTableTest, ASampleHasOneEntryAndAnotherIsGivenBack) {
  EntryTable<Entry> table;
  ASSERT_EQ(table.Add(TableEntryOf(1, 10)), nullptr);
  const std::unique_ptr<Entry> second = table.Add(TableEntryOf(1, 20));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->bytes, 20U);
  EXPECT_EQ(table.Remove(SampleId{1}, second.get()), nullptr);
  EXPECT_TRUE(table.Has(SampleId{1}));
  EXPECT_EQ(table.size(), 1U);
}

TEST(EntryTableTest, ThousandsAreFoundAgain) {
  EntryTable<Entry> table;
  for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_EQ(table.Add(TableEntryOf(i, i)), nullptr);
  EXPECT_EQ(table.size(), 5000U);
  EXPECT_EQ(table.Samples().size(), 5000U);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    Entry* const entry = table.Find(SampleId{i});
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->bytes, i);
    EXPECT_EQ(table.Release(entry), nullptr);
  }
  EXPECT_FALSE(table.Has(SampleId{5000}));
}

}  // namespace
}  // namespace headrace
