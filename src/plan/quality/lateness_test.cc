#include "plan/quality/lateness.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace headrace::quality {
namespace {

std::vector<std::uint32_t> Ascending(std::uint32_t count) {
  std::vector<std::uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

QualityReport Reported(const Lateness& lateness) {
  QualityReport report;
  lateness.Report("it", 1e-3, report);
  return report;
}

TEST(LatenessTest, SamplesInTheOrderOfStorageMakeTheFirstPlaceEarlyByHalfAnEpoch) {
  Lateness lateness = Lateness::ByPlace(6400);
  lateness.Add(Ascending(6400));
  const QualityReport report = Reported(lateness);
  ASSERT_EQ(report.tests.size(), 1U);
  EXPECT_EQ(report.tests[0].name, "lateness_by_it");
  EXPECT_FALSE(report.tests[0].within);
  EXPECT_NEAR(report.more.at("late_by_it"), 63.0 / 128, 1e-12);
}

TEST(LatenessTest, AnEpochAndItsReverseCancelOut) {
  Lateness lateness = Lateness::ByPlace(6400);
  std::vector<std::uint32_t> ids = Ascending(6400);
  lateness.Add(ids);
  std::ranges::reverse(ids);
  lateness.Add(ids);
  const QualityReport report = Reported(lateness);
  ASSERT_EQ(report.tests.size(), 1U);
  EXPECT_NEAR(report.tests[0].value, 0, 1e-9);
  EXPECT_TRUE(report.tests[0].within);
}

TEST(LatenessTest, EqualCostsAreOneGroupWhichTellsNothing) {
  Lateness lateness = Lateness::ByCost(std::vector<std::uint32_t>(100, 7));
  lateness.Add(Ascending(100));
  EXPECT_TRUE(Reported(lateness).tests.empty());
  EXPECT_TRUE(Reported(Lateness()).tests.empty());
}

TEST(LatenessTest, TheDearestTenthAtTheEndIsLate) {
  std::vector<std::uint32_t> costs(1000, 1);
  std::fill(costs.begin() + 900, costs.end(), 9);
  Lateness lateness = Lateness::ByCost(costs);
  lateness.Add(Ascending(1000));
  const QualityReport report = Reported(lateness);
  ASSERT_EQ(report.tests.size(), 1U);
  EXPECT_FALSE(report.tests[0].within);
}

}  // namespace
}  // namespace headrace::quality
