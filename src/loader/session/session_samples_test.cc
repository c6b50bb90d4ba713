#include "loader/session/session_samples.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/registry/testing/scoped_entry.h"
#include "base/units.h"
#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loader/config/resolved_order.h"
#include "loader/session/session_tiers.h"
#include "plan/placement/readers/ask_policy.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class SessionSamplesTest : public ::testing::Test {
 protected:
  void Take(NodeNumber node, std::uint64_t round) {
    samples_.TakeParcel(
        node, {.round = round, .count = 1},
        [this](const Result<OwnedBytes>& bytes) { ended_.push_back(bytes.status()); });
  }

  std::vector<Status> ended_;
  SessionSamples samples_{/*tiers=*/nullptr};
};

TEST_F(SessionSamplesTest, PartsOfARunThatIsExpectedWaitForItAndOthersAreRefused) {
  samples_.Expect(3);
  Take(1, 3);
  EXPECT_THAT(ended_, SizeIs(0));
  Take(1, 2);
  ASSERT_THAT(ended_, SizeIs(1));
  EXPECT_EQ(ended_[0].code(), StatusCode::kUnavailable);
  EXPECT_THAT(ended_[0].ToString(), HasSubstr("the other node is in run 2, this one in run 3"));
  samples_.End();
  ASSERT_THAT(ended_, SizeIs(2)) << "the run does not begin";
  EXPECT_EQ(ended_[1].code(), StatusCode::kUnavailable);
}

TEST_F(SessionSamplesTest, EachNodeHasRoomForTwiceWhatItMayAskFor) {
  samples_.Expect(1);
  for (std::size_t i = 0; i < 2 * kPartsOpenMax; ++i) Take(1, 1);
  EXPECT_THAT(ended_, SizeIs(0));
  Take(1, 1);
  ASSERT_THAT(ended_, SizeIs(1));
  EXPECT_EQ(ended_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(ended_[0].ToString(), HasSubstr("node 1 waits for 2048 other parts"));
  Take(2, 1);
  EXPECT_THAT(ended_, SizeIs(1)) << "another node's";
  samples_.End();
  EXPECT_THAT(ended_, SizeIs(2 * kPartsOpenMax + 2));
}

TEST_F(SessionSamplesTest, ARunThatHasEndedSaysSo) {
  samples_.Expect(1);
  samples_.End();
  Take(1, 1);
  ASSERT_THAT(ended_, SizeIs(1));
  EXPECT_THAT(ended_[0].ToString(), HasSubstr("this node has ended run 1"));
}

TEST(SessionSamplesOfTiersTest, WhatNoTierHasIsNotReadForNodesThatGuess) {
  const LoopHarness test;
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the type of the pointer
  const AskPolicy guess("guess", [](auto inner, auto /*node*/, auto /*filled*/) { return inner; });
  const ScopedEntry<AskPolicy> added(AskPolicies(), guess);
  const auto index = std::make_shared<const TableIndex>(test.index);
  const auto order = std::make_shared<ResolvedOrder>(
      ResolvedOrder::Make(index, {.sample_count = 8, .batch_size = 1, .ranks = 1},
                          {.name = "exact"})
          .value());
  ASSERT_TRUE(order->Settle(0).ok());
  const auto tiers =
      SessionTiers::Open(index, test.schema, {.tiers = {{.capacity_bytes = kMiB}}, .ask = "guess"},
                         order,
                         /*verified=*/true, {})
          .value();
  SessionSamples samples(tiers.get());
  std::string said;
  samples.Take(SampleId{3}, 0,
               [&](const Result<Tier::EntryRef>& entry) { said = entry.status().ToString(); });
  EXPECT_EQ(said, "NotFound: sample 3 is not in a tier of this node yet");
}

}  // namespace
}  // namespace headrace
