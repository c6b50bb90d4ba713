#include "tier/ssd_units.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(SsdUnitsTest, ADroppedEntryIsNotChargedButItsUnitsAreNotFreeYet) {
  SsdUnits units(4, UnitSpace(4));
  units.Charge(3);
  EXPECT_EQ(units.charged(), 3U);
  EXPECT_EQ(units.not_charged(), 1U);
  auto entry = std::make_unique<SsdEntry>();
  entry->runs = units.Take(3).value();
  units.AddRecord(*entry);
  EXPECT_EQ(units.live_bytes(), InsertRecordBytes(entry->runs.size()));

  units.Drop(std::move(entry), 3);
  EXPECT_EQ(units.not_charged(), 4U);
  EXPECT_EQ(units.live_bytes(), 0U);
  EXPECT_FALSE(units.Take(2).has_value());

  const std::vector<std::unique_ptr<SsdEntry>> dropped = units.TakeDropped();
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_TRUE(units.TakeDropped().empty());
  units.Free(dropped[0]->runs);
  EXPECT_TRUE(units.Take(4).has_value());
}

TEST(SsdUnitsTest, AFailedInsertGivesItsChargeBack) {
  SsdUnits units(4, UnitSpace(4));
  units.Charge(4);
  EXPECT_EQ(units.not_charged(), 0U);
  units.Uncharge(4);
  EXPECT_EQ(units.not_charged(), 4U);
}

}  // namespace
}  // namespace headrace
