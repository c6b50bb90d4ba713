#include "loader/session/owed_wait.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeNodes final : public OtherNodes {
 public:
  FetchSource& source() override { std::abort(); }
  Result<std::vector<NodeFacts>> Agree(const NodeFacts& /*own*/) override {
    return std::vector<NodeFacts>();
  }
  [[nodiscard]] std::uint64_t round() const override { return newest; }
  void StopTaking(std::uint64_t round) override { stopped.push_back(round); }
  bool AnyTakes() override { return any_takes; }
  [[nodiscard]] std::int64_t patience_ns() const override { return 1'000 * kNsPerSecond; }
  void Plan(const StepSums& /*sums*/) override {}
  void Give(HeldSamples* /*held*/) override {}
  [[nodiscard]] NodeTraffic traffic() const override { return {}; }

  std::atomic<std::uint64_t> newest = 1;
  std::atomic<bool> any_takes = true;
  std::vector<std::uint64_t> stopped;
};

class OwedWaitTest : public ::testing::Test {
 protected:
  MonotonicClock clock_;
  FakeNodes nodes_;
  std::atomic<bool> owes_ = true;
  std::atomic<int> looks_ = 0;
  OwedWait wait_{clock_, nodes_, [this] {
                   ++looks_;
                   return owes_.load();
                 }};
};

TEST_F(OwedWaitTest, LooksAgainWhenSomethingHasChangedAndNotAllTheTime) {
  EXPECT_FALSE(wait_.Wait(OwedWait::kLookNs / 2));
  EXPECT_LE(looks_, 4) << "at the beginning, at the end, and if it woke for no reason";
  std::jthread waits([this] { EXPECT_TRUE(wait_.Wait(-1)); });
  owes_ = false;
  wait_.Changed();
}

TEST_F(OwedWaitTest, AnEndOfTheOthersOrOfTheCallerEndsIt) {
  nodes_.any_takes = false;
  EXPECT_TRUE(wait_.Wait(-1));
  nodes_.any_takes = true;
  EXPECT_FALSE(wait_.Wait(0));
  std::jthread waits([this] { EXPECT_TRUE(wait_.Wait(-1)); });
  wait_.Cancel();
}

TEST_F(OwedWaitTest, TellsTheOthersOnceForEachRun) {
  EXPECT_FALSE(wait_.Wait(0));
  EXPECT_FALSE(wait_.Wait(0));
  nodes_.newest = 2;
  EXPECT_FALSE(wait_.Wait(0));
  EXPECT_THAT(nodes_.stopped, ElementsAre(1, 2));
}

TEST_F(OwedWaitTest, ARunThatAnotherOneHasFollowedIsNotWaitedForAndTheNewOneGoesOn) {
  EXPECT_TRUE(wait_.Wait(-1, [] { return true; }));
  EXPECT_THAT(nodes_.stopped, IsEmpty());
  EXPECT_FALSE(wait_.Wait(0, [] { return false; }));
}

}  // namespace
}  // namespace headrace
