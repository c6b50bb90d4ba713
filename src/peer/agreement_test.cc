#include "peer/agreement.h"

#include <thread>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kLong = 60 * kNsPerSecond;

bool Always() { return true; }

TEST(AgreementTest, ReturnsWhatEveryNodeSaidByNode) {
  Agreement agreement(0, 3);
  EXPECT_TRUE(agreement.Say(2, 1, "c").ok());
  EXPECT_TRUE(agreement.Say(0, 1, "a").ok());
  std::jthread late([&] { EXPECT_TRUE(agreement.Say(1, 1, "b").ok()); });
  const auto all = agreement.Await(1, kLong, Always);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_THAT(all.value(), ElementsAre("a", "b", "c"));
}

TEST(AgreementTest, ANodeMayBeARoundAheadAndSayThingsTwice) {
  Agreement agreement(0, 2);
  EXPECT_TRUE(agreement.Say(1, 1, "first").ok());
  EXPECT_TRUE(agreement.Say(1, 1, "first").ok());
  EXPECT_TRUE(agreement.Say(1, 2, "second").ok());
  EXPECT_TRUE(agreement.Say(0, 1, "own").ok());
  EXPECT_THAT(agreement.Await(1, kLong, Always).value(), ElementsAre("own", "first"));
  EXPECT_TRUE(agreement.Say(1, 1, "first").ok()) << "a message that came late";
  EXPECT_TRUE(agreement.Say(0, 2, "own 2").ok());
  EXPECT_THAT(agreement.Await(2, kLong, Always).value(), ElementsAre("own 2", "second"));
}

TEST(AgreementTest, RefusesOtherNodesFarRoundsAndContradictions) {
  Agreement agreement(0, 2);
  EXPECT_EQ(agreement.Say(2, 1, "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(agreement.Say(1, 2 + Agreement::kRoundsAhead, "x").code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(agreement.Say(1, 1, "x").ok());
  EXPECT_EQ(agreement.Say(1, 1, "y").code(), StatusCode::kFailedPrecondition);
}

TEST(AgreementTest, NamesTheNodesThatAreMissing) {
  Agreement agreement(1, 4);
  EXPECT_TRUE(agreement.Say(1, 1, "b").ok());
  EXPECT_TRUE(agreement.Say(2, 1, "c").ok());
  const auto all = agreement.Await(1, 0, Always);
  EXPECT_EQ(all.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(all.status().message()), HasSubstr("node 0, 3 did not begin it"));
}

TEST(AgreementTest, GivesUpWhenNobodyWaitsAnyMore) {
  Agreement agreement(0, 2);
  EXPECT_EQ(agreement.Await(1, kLong, [] { return false; }).status().code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace headrace
