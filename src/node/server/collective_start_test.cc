#include "node/server/collective_start.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using Wish = CollectiveStart::Wish;

constexpr CollectiveStart::Pace kPace{.steps_per_epoch = 10, .batches_behind = 0};

// Ranks 4, 5 and 6 of job "train", all there.
class CollectiveStartTest : public ::testing::Test {
 protected:
  CollectiveStartTest() {
    for (std::uint32_t local_rank = 0; local_rank < 3; ++local_rank) ranks_.Join(local_rank);
  }
  Status Ask(std::uint32_t local_rank, Position position) {
    return ranks_.Ask(local_rank, {.start = 7, .position = position});
  }
  void BeginAt(Position position) {
    for (std::uint32_t local_rank = 0; local_rank < 3; ++local_rank)
      EXPECT_TRUE(Ask(local_rank, position).ok());
    EXPECT_EQ(AgreedPosition(), position);
    ranks_.Begin(position);
  }
  [[nodiscard]] std::optional<Position> AgreedPosition() const {
    const Result<std::optional<Wish>> agreed = ranks_.Agreed();
    EXPECT_TRUE(agreed.ok()) << agreed.status().ToString();
    if (!agreed.ok() || !agreed.value().has_value()) return std::nullopt;
    return agreed.value()->position;
  }

  CollectiveStart ranks_{"train", /*first_rank=*/4, /*ranks=*/3};
};

TEST_F(CollectiveStartTest, ARunBeginsWhenAllHaveAskedForOnePosition) {
  EXPECT_TRUE(ranks_.Awaited().empty()) << "nobody waits";
  EXPECT_TRUE(Ask(0, {.epoch = 2}).ok());
  EXPECT_TRUE(Ask(2, {.epoch = 2}).ok());
  EXPECT_EQ(ranks_.Awaited(), std::vector<std::uint32_t>{5});
  EXPECT_EQ(AgreedPosition(), std::nullopt);
  EXPECT_TRUE(Ask(1, {.epoch = 2}).ok());
  EXPECT_EQ(AgreedPosition(), (Position{.epoch = 2}));
  ranks_.Begin({.epoch = 2});
  EXPECT_EQ(AgreedPosition(), std::nullopt) << "it began";
}

TEST_F(CollectiveStartTest, OneThatIsGoneIsNotAwaitedAndOneThatNeverCameIs) {
  EXPECT_TRUE(Ask(0, {}).ok());
  EXPECT_TRUE(Ask(1, {}).ok());
  ranks_.Leave(2);
  EXPECT_EQ(AgreedPosition(), Position());
  ranks_.Leave(0);
  ranks_.Leave(1);
  EXPECT_EQ(AgreedPosition(), std::nullopt) << "all are gone";

  CollectiveStart fresh("train", 4, 2);
  fresh.Join(0);
  EXPECT_TRUE(fresh.Ask(0, {.start = 7}).ok());
  EXPECT_EQ(fresh.Awaited(), std::vector<std::uint32_t>{5});
  EXPECT_TRUE(fresh.GiveUp(0, /*start=*/6, 9'000'000'000).ok()) << "an older wait";
  const Status over = fresh.GiveUp(0, 7, 9'000'000'000);
  EXPECT_EQ(over.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(over.message(),
            "starting epoch 0 step 0 of job 'train': rank 4 waited 9 s for local rank 1 of 2, "
            "which made no loader: make the same loaders on every rank of the node, in the same "
            "order, or raise Node.start_timeout");
  fresh.Join(1);
  EXPECT_TRUE(fresh.GiveUp(0, 7, 9'000'000'000).ok()) << "it is there and may take its time";
}

TEST_F(CollectiveStartTest, DifferentPositionsAreAnErrorThatNamesAll) {
  EXPECT_TRUE(Ask(0, {.epoch = 1}).ok());
  EXPECT_TRUE(Ask(1, {.epoch = 1, .step = 3}).ok());
  EXPECT_TRUE(Ask(2, {.epoch = 1}).ok());
  const Status status = ranks_.Agreed().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "starting job 'train': rank 4 asks for epoch 1 step 0, rank 5 asks for epoch 1 step 3, "
            "rank 6 asks for epoch 1 step 0: the ranks of a node must start at the same step; call "
            "iter(), set_epoch() and load_state_dict() equally on each");
}

TEST_F(CollectiveStartTest, AListAndTheJobsOwnOrderAreDifferentRuns) {
  EXPECT_TRUE(Ask(0, {}).ok());
  EXPECT_TRUE(Ask(1, {}).ok());
  EXPECT_TRUE(ranks_.Ask(2, {.start = 7, .list = ListOrderOptions()}).ok());
  const Status status = ranks_.Agreed().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("rank 5 asks for epoch 0 step 0, rank 6 asks for epoch 0 step 0 of a list"));
}

TEST_F(CollectiveStartTest, OneThatComesBackIsToldThatTheOthersGoOn) {
  BeginAt({});
  EXPECT_TRUE(ranks_.Took(1, {.step = 5}, kPace).ok());
  ranks_.Withdraw(0);
  ranks_.Leave(2);
  ranks_.Join(2);
  const Status status = Ask(2, {});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "rank 6 joins job 'train' again and asks for epoch 0 step 0, but rank 5 is already at "
            "epoch 0 step 5 or later: start all ranks of the node again, with the same "
            "state_dict()");
  EXPECT_TRUE(Ask(0, {}).ok()) << "it was there all the time: the others may yet ask as it does";
}

TEST_F(CollectiveStartTest, AWaitThatOthersHavePassedIsAnError) {
  BeginAt({});
  EXPECT_TRUE(ranks_.Took(0, {.step = 2}, kPace).ok());
  ranks_.Withdraw(0);
  EXPECT_TRUE(Ask(0, {.epoch = 1}).ok());
  EXPECT_TRUE(ranks_.Took(1, {.step = 9}, kPace).ok());
  EXPECT_TRUE(ranks_.Took(1, {.step = 10}, kPace).ok()) << "it may leave at the end of the epoch";
  const CollectiveStart::Pace ahead{.steps_per_epoch = 10, .batches_behind = 3};
  EXPECT_TRUE(ranks_.Took(1, {.epoch = 1, .step = 2}, ahead).ok()) << "its loop is behind";
  const Status status = ranks_.Took(1, {.epoch = 1, .step = 1}, kPace);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "rank 4 left its loop at epoch 0 step 2 and waits to start epoch 1 step 0, but rank 5 "
            "did not leave there and is past that: leave an epoch on every rank of a node, or on "
            "none");
}

}  // namespace
}  // namespace headrace
