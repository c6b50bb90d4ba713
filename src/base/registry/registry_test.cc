#include "base/registry/registry.h"

#include <deque>
#include <string>
#include <string_view>
#include <thread>

#include "base/registry/testing/scoped_entry.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

class Named {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] std::string_view name() const { return name_; }

 private:
  const std::string name_;
};

TEST(RegistryTest, ARowThatIsAddedIsLastAndTheDefaultStays) {
  const Named shipped("shipped");
  const Named own("own");
  Registry<Named> table("thing", {&shipped});
  const auto before = table.rows();
  EXPECT_TRUE(table.Add(own).ok());
  EXPECT_EQ(table.Get("own").value(), &own);
  EXPECT_EQ(table.default_name(), "shipped");
  EXPECT_EQ(table.Names(), "'shipped', 'own'");
  EXPECT_EQ(before.size(), 1) << "a span stays what it was";
}

TEST(RegistryTest, AnEntryThatIsAddedAgainChangesNothing) {
  const Named own("own");
  Registry<Named> table("thing", {});
  EXPECT_TRUE(table.Add(own).ok());
  EXPECT_TRUE(table.Add(own).ok());
  EXPECT_EQ(table.rows().size(), 1);
}

TEST(RegistryTest, ASecondEntryOfANameIsRefused) {
  const Named shipped("same");
  const Named own("same");
  Registry<Named> table("thing", {&shipped});
  EXPECT_EQ(table.Add(own).ToString(),
            "InvalidArgument: adding 'same' to the table of things: another entry has that name; "
            "use a new one");
  EXPECT_EQ(table.Find("same"), &shipped);
}

TEST(RegistryTest, AFullTableIsNamed) {
  std::deque<Named> entries;
  Registry<Named> table("thing", {});
  for (std::size_t i = 0; i < Registry<Named>::kRowsMax; ++i) {
    ASSERT_TRUE(table.Add(entries.emplace_back(std::to_string(i))).ok());
  }
  EXPECT_EQ(table.Add(entries.emplace_back("more")).ToString(),
            "ResourceExhausted: adding 'more' to the table of things: it has 64 rows, which is the "
            "most");
}

TEST(RegistryTest, ReadersSeeWholeRowsWhileOthersAreAdded) {
  std::deque<Named> entries;
  for (std::size_t i = 0; i < Registry<Named>::kRowsMax; ++i) {
    entries.emplace_back(std::to_string(i));
  }
  Registry<Named> table("thing", {&entries.front()});
  std::jthread adding([&] {
    for (const Named& entry : entries) EXPECT_TRUE(table.Add(entry).ok());
  });
  std::size_t seen = 0;
  while (seen < entries.size()) {
    const auto rows = table.rows();
    ASSERT_GE(rows.size(), seen);
    seen = rows.size();
    EXPECT_EQ(rows.back(), &entries[seen - 1]);
  }
}

TEST(RegistryTest, AScopedEntryLeaves) {
  const Named shipped("shipped");
  const Named own("own");
  Registry<Named> table("thing", {&shipped});
  {
    const ScopedEntry<Named> added(table, own);
    EXPECT_EQ(table.Find("own"), &own);
  }
  EXPECT_EQ(table.Find("own"), nullptr);
  EXPECT_TRUE(table.Add(own).ok());
}

}  // namespace
}  // namespace headrace
