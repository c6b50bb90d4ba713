#include "plan/quality/tallies.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace headrace::quality {
namespace {

TEST(TalliesTest, AStatisticIsTheMeanOfItsEpochsOrARatioToWhatIsExpected) {
  Tallies tallies;
  for (const double value : {3.0, 5.0}) {
    tallies.Count("mean", "M1", false, value, {.mean = 2, .sd = 1});
    tallies.Count("ratio", "M3", true, value, {.mean = 2, .sd = 1});
  }
  const std::vector<QualityTest> tests = tallies.Tests(0.5);
  ASSERT_EQ(tests.size(), 2U);
  EXPECT_EQ(tests[0].name, "mean");
  EXPECT_EQ(tests[0].id, "M1");
  EXPECT_EQ(tests[0].value, 4);
  EXPECT_EQ(tests[0].expected, 2);
  EXPECT_EQ(tests[1].value, 2);
  EXPECT_EQ(tests[1].expected, 1);
  EXPECT_NEAR(tests[0].z, 4 / std::sqrt(2.0), 1e-12);  // Variances of epochs add up.
  EXPECT_FALSE(tests[0].within);
  EXPECT_TRUE(tallies.Tests(1e-6)[0].within);
}

TEST(TalliesTest, AStatisticWithoutANullIsNotTested) {
  Tallies tallies;
  tallies.Count("none", "M1", false, 7, {});
  EXPECT_TRUE(tallies.Tests(0.5).empty());
  EXPECT_EQ(tallies.CountTests(3), 0);
}

TEST(TalliesTest, TheWorstEpochIsTested) {
  Tallies tallies;
  for (const double value : {0.9, 4.0, 1.0}) tallies.Worst("high", "M5", 1, value, false);
  for (const double value : {0.9, 0.01, 1.0}) tallies.Worst("low", "M6", 1, value, true);
  const std::vector<QualityTest> tests = tallies.Tests(1e-3);
  ASSERT_EQ(tests.size(), 2U);
  EXPECT_EQ(tests[0].value, 4);
  EXPECT_FALSE(tests[0].within);
  EXPECT_EQ(tests[0].low, 0);
  EXPECT_EQ(tests[1].value, 0.01);  // Too even for chance.
  EXPECT_FALSE(tests[1].within);
  EXPECT_EQ(tallies.CountTests(3), 6);
}

}  // namespace
}  // namespace headrace::quality
