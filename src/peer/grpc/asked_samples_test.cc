#include "peer/grpc/asked_samples.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "fetch/held_samples.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kHedgeNs = 1 * kNsPerSecond;
constexpr std::int64_t kAnswerNs = 5 * kNsPerSecond;

class AskedSamplesTest : public ::testing::Test {
 protected:
  // A sample that is asked for at time `at_ns`.
  void Add(std::uint64_t bytes, std::int64_t at_ns, std::optional<NodeNumber> second = std::nullopt,
           std::shared_ptr<HedgedRead> hedged = nullptr) {
    Fetch& fetch = *fetches_.emplace_back(std::make_unique<Fetch>());
    asked_.Add({.fetch = &fetch,
                .sample = SampleId{fetches_.size() - 1},
                .bytes = bytes,
                .done = &done_,
                .hedge_ns = at_ns + kHedgeNs,
                .due_ns = at_ns + kAnswerNs,
                .second = second,
                .is_second = hedged != nullptr,
                .hedged = std::move(hedged)});
  }
  // A part of a parcel, asked for ahead: of `bytes`, due at step `deadline`.
  Fetch& AddPart(std::uint64_t bytes, std::int64_t at_ns, std::uint64_t deadline = 0,
                 bool is_again = false) {
    Fetch& fetch = *fetches_.emplace_back(std::make_unique<Fetch>());
    fetch.from = PartAtNode{.wait = &wait_};
    asked_.Add({.fetch = &fetch,
                .sample = SampleId{fetches_.size() - 1},
                .bytes = bytes,
                .deadline = deadline,
                .done = &done_,
                .asked_ns = at_ns,
                .due_ns = at_ns + kAnswerNs,
                .parcel = ParcelPart{.parcel = fetches_.size() - 1, .first = 0, .count = 1},
                .is_again = is_again});
    return fetch;
  }
  // The node refuses what was asked for with this number.
  void Refuse(std::uint64_t number, StatusCode why) {
    std::vector<AskedSamples::Arrived> arrived;
    ReceivedAnswer answer{.number = number, .code = static_cast<std::uint32_t>(why)};
    ASSERT_TRUE(asked_.Take(answer, arrived, todo_).ok());
    for (const AskedSamples::Arrived& each : arrived) asked_.Finish(each, todo_);
  }
  // The samples that may be sent now.
  std::vector<std::uint64_t> Send() {
    std::vector<std::uint64_t> sent;
    while (const auto next = asked_.Next(todo_)) sent.push_back(Raw(next->second->sample));
    return sent;
  }
  std::vector<std::uint64_t> Handed() {
    std::vector<std::uint64_t> samples;
    for (const AskedSamples::Handed& each : todo_.handed) samples.push_back(Raw(each.sample));
    todo_.handed.clear();
    return samples;
  }

  StepWait wait_;
  PeerCounters counters_;
  AskedSamples asked_{"node 1", counters_};
  AskedSamples::Todo todo_;
  const FetchSource::Done done_;
  std::vector<std::unique_ptr<Fetch>> fetches_;
};

TEST_F(AskedSamplesTest, ANodeWhoseWindowIsFullOfOverdueAnswersIsLateAgainAndAgain) {
  Add(kPeerWindowBytes, 0);
  EXPECT_THAT(Send(), ElementsAre(0));
  EXPECT_FALSE(asked_.Sweep(kAnswerNs - 1, todo_));
  EXPECT_TRUE(asked_.Sweep(kAnswerNs, todo_));
  Add(1, kAnswerNs);
  EXPECT_THAT(Send(), IsEmpty());  // The node may still send what was given up.
  EXPECT_TRUE(asked_.Sweep(2 * kAnswerNs, todo_));
  EXPECT_EQ(todo_.ended.size(), 2U);
}

TEST_F(AskedSamplesTest, WhatWaitsForTheRateBudgetIsNotTheNodesFault) {
  Add(100, 0, /*second=*/2);
  EXPECT_FALSE(asked_.Sweep(kHedgeNs, todo_));
  EXPECT_THAT(Handed(), IsEmpty());
  EXPECT_FALSE(asked_.Sweep(kAnswerNs, todo_));
  EXPECT_EQ(todo_.ended.size(), 1U);
}

TEST_F(AskedSamplesTest, WhatWaitsBehindASilentNodesAnswersIsAskedOfTheSecondToo) {
  Add(kPeerWindowBytes, 0, /*second=*/2);
  Add(100, 0, /*second=*/2);
  EXPECT_THAT(Send(), ElementsAre(0));
  EXPECT_FALSE(asked_.Sweep(kHedgeNs, todo_));
  EXPECT_THAT(Handed(), ::testing::UnorderedElementsAre(0, 1));
}

TEST_F(AskedSamplesTest, WhatAnotherNodeHasGivenIsNotAskedFor) {
  const auto hedged = std::make_shared<HedgedRead>();
  Add(100, 0, std::nullopt, hedged);
  Add(100, 0);
  EXPECT_TRUE(hedged->Claim(this));  // as the other node
  EXPECT_THAT(Send(), ElementsAre(1));
  EXPECT_THAT(todo_.ended, IsEmpty());  // The winner says how it ended.
  EXPECT_FALSE(hedged->IsLost(this));
}

TEST_F(AskedSamplesTest, ASecondNodeThatHadLittleTimeIsNotLate) {
  Add(100, 0, std::nullopt, std::make_shared<HedgedRead>());
  EXPECT_THAT(Send(), ElementsAre(0));
  EXPECT_FALSE(asked_.Sweep(kAnswerNs, todo_));
}

TEST_F(AskedSamplesTest, SoManySamplesMayBeOpen) {
  for (std::size_t i = 0; i < kPeerOpenMax + 5; ++i) Add(1, 0);
  EXPECT_EQ(Send().size(), kPeerOpenMax);
}

TEST_F(AskedSamplesTest, APartThatNoStepWaitsForIsNeverLate) {
  AddPart(100, 0);
  EXPECT_THAT(Send(), ElementsAre(0));
  EXPECT_FALSE(asked_.Sweep(1000 * kAnswerNs, todo_));
  EXPECT_THAT(todo_.ended, IsEmpty());
}

TEST_F(AskedSamplesTest, APartIsLateSoLongAfterItsStepIsWaitedForNotAfterItWasAskedFor) {
  AddPart(100, 0, /*deadline=*/7);
  AddPart(100, 0, /*deadline=*/8);
  EXPECT_THAT(Send(), ElementsAre(0, 1));
  const std::int64_t since_ns = 100 * kAnswerNs;
  wait_.Begin(since_ns, /*deadline=*/7);
  EXPECT_FALSE(asked_.Sweep(since_ns + kAnswerNs - 1, todo_));
  EXPECT_THAT(todo_.ended, IsEmpty());
  EXPECT_TRUE(asked_.Sweep(since_ns + kAnswerNs, todo_));
  ASSERT_EQ(todo_.ended.size(), 1U) << "only what the step needs";
  EXPECT_EQ(todo_.ended[0].fetch, fetches_[0].get());
  EXPECT_EQ(todo_.ended[0].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(todo_.ended[0].status.ToString(),
              ::testing::HasSubstr("parcel 0 of node 1, 1 sample from 0 on: 0 of 100 bytes came in "
                                   "5 s"));
}

TEST_F(AskedSamplesTest, AStepThatIsWaitedForNoLongerMakesNothingLate) {
  AddPart(100, 0);
  EXPECT_THAT(Send(), ElementsAre(0));
  wait_.Begin(kAnswerNs, 0);
  EXPECT_FALSE(asked_.Sweep(2 * kAnswerNs - 1, todo_));
  wait_.End();
  EXPECT_FALSE(asked_.Sweep(9 * kAnswerNs, todo_));
  wait_.Begin(9 * kAnswerNs, 0);
  EXPECT_FALSE(asked_.Sweep(10 * kAnswerNs - 1, todo_));
  EXPECT_TRUE(asked_.Sweep(10 * kAnswerNs, todo_));
}

TEST_F(AskedSamplesTest, MorePartsThanMayBeOpenWaitUntilOneHasEnded) {
  for (std::size_t i = 0; i < kPartsOpenMax + 2; ++i) AddPart(10, 0);
  EXPECT_EQ(Send().size(), kPartsOpenMax);
  Refuse(1, StatusCode::kUnavailable);
  EXPECT_THAT(Send(), ElementsAre(kPartsOpenMax));
}

// The other node still waits for them, and refuses more than twice as many.
TEST_F(AskedSamplesTest, PartsThatWereGivenUpCountUntilTheNodeAnswersThem) {
  for (std::size_t i = 0; i < kPartsOpenMax; ++i) AddPart(10, 0);
  EXPECT_EQ(Send().size(), kPartsOpenMax);
  wait_.Begin(0, /*deadline=*/0);
  EXPECT_TRUE(asked_.Sweep(kAnswerNs, todo_));
  EXPECT_EQ(todo_.ended.size(), kPartsOpenMax);
  AddPart(10, kAnswerNs);
  AddPart(10, kAnswerNs);
  EXPECT_THAT(Send(), IsEmpty());
  Refuse(1, StatusCode::kUnavailable);
  EXPECT_THAT(Send(), ElementsAre(kPartsOpenMax));
  Refuse(2, StatusCode::kUnavailable);
  EXPECT_THAT(Send(), ElementsAre(kPartsOpenMax + 1));
}

// The other node may be rid of its samples only when these are taken: what fills the window waits
// for that.
TEST_F(AskedSamplesTest, SamplesOfAPartThatFailedAreAskedForAtOnceBeyondTheWindow) {
  AddPart(100, 0);
  AddPart(kPeerWindowBytes - 100, 0);
  AddPart(100, 0);
  AddPart(100, 0);
  EXPECT_THAT(Send(), ElementsAre(0, 1));
  Refuse(1, StatusCode::kDataLoss);
  EXPECT_THAT(Send(), ElementsAre(2)) << "takes the place of the first";
  AddPart(50, 0, 0, /*is_again=*/true);
  EXPECT_THAT(Send(), ElementsAre(4));
  AddPart(kPeerWindowBytes, 0, 0, /*is_again=*/true);
  EXPECT_THAT(Send(), IsEmpty()) << "more than the other node suffers";
}

}  // namespace
}  // namespace headrace
