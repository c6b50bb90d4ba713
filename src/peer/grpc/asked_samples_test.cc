#include "peer/grpc/asked_samples.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
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
  void Add(std::uint64_t bytes, std::int64_t at_ns, NodeNumber second = kNoNode,
           std::shared_ptr<Race> race = nullptr) {
    Fetch& fetch = *fetches_.emplace_back(std::make_unique<Fetch>());
    asked_.Add({.fetch = &fetch,
                .sample = SampleId{fetches_.size() - 1},
                .bytes = bytes,
                .done = &done_,
                .hedge_ns = at_ns + kHedgeNs,
                .due_ns = at_ns + kAnswerNs,
                .second = second,
                .is_second = race != nullptr,
                .race = std::move(race)});
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

  PeerCounters counters_;
  AskedSamples asked_{"node 1", kAnswerNs, counters_};
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
  const auto race = std::make_shared<Race>();
  Add(100, 0, kNoNode, race);
  Add(100, 0);
  EXPECT_TRUE(race->Claim(this));  // as the other node
  EXPECT_THAT(Send(), ElementsAre(1));
  EXPECT_THAT(todo_.ended, IsEmpty());  // The winner says how it ended.
  EXPECT_FALSE(race->IsLost(this));
}

TEST_F(AskedSamplesTest, ASecondNodeThatHadLittleTimeIsNotLate) {
  Add(100, 0, kNoNode, std::make_shared<Race>());
  EXPECT_THAT(Send(), ElementsAre(0));
  EXPECT_FALSE(asked_.Sweep(kAnswerNs, todo_));
}

TEST_F(AskedSamplesTest, SoManySamplesMayBeOpen) {
  for (std::size_t i = 0; i < kPeerOpenMax + 5; ++i) Add(1, 0);
  EXPECT_EQ(Send().size(), kPeerOpenMax);
}

}  // namespace
}  // namespace headrace
