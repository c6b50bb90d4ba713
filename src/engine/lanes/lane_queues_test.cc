#include "engine/lanes/lane_queues.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace headrace {
namespace {

// Gives the shares that are written down.
struct WrittenPolicy final : LanePolicy {
  Status Split(Position /*at*/, std::span<const LaneWork> work,
               std::span<LaneShare> shares) override {
    seen.assign(work.begin(), work.end());
    std::copy(says.begin(), says.end(), shares.begin());
    return Status();
  }
  std::vector<LaneShare> says = {{.reads = 1, .decodes = 1}, {.reads = 2, .decodes = 2}};
  std::vector<LaneWork> seen;
};

class LaneQueuesTest : public ::testing::Test {
 protected:
  LaneQueuesTest() {
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      works_[lane].lane = lane;
      works_[lane].deadline = 100;
      works_[lane].stored_bytes = 1000;
      for (RowRead& read : reads_[lane]) {
        read.work = &works_[lane];
        read.from = Extent{.range = {0, 300}};
        queues_.AddReads(works_[lane], {&read});
      }
    }
  }
  // The lane whose read is next, which is issued; -1: none.
  int Issue() {
    const std::optional<WaitingReads> next = queues_.NextReads();
    if (!next.has_value()) return -1;
    StepWork& work = *next->reads->front()->work;
    for (const RowRead* const read : queues_.TakeReads(*next)) {
      work.issued_bytes += read->bytes();
    }
    return static_cast<int>(work.lane);
  }
  static std::unique_ptr<DecodeTask> Task(StepWork& work) {
    auto task = std::make_unique<DecodeTask>();
    task->work = &work;
    return task;
  }

  WrittenPolicy policy_;
  StepWork works_[2];
  RowRead reads_[2][3];
  LaneQueues queues_{std::vector<EngineLane>(2), &policy_};
};

TEST_F(LaneQueuesTest, LanesAreReadInTurnByTheShareOfTheirStepThatIsIssued) {
  policy_.says = {{.reads = 9}, {.reads = 9}};
  EXPECT_TRUE(queues_.Split({}, std::vector<LaneWork>(2)).ok());
  EXPECT_EQ(policy_.seen[1].queued_bytes.storage, 900U);
  works_[1].stored_bytes = 2000;  // A read is half as much of it.
  std::vector<int> lanes;
  for (int i = 0; i < 6; ++i) lanes.push_back(Issue());
  EXPECT_EQ(lanes, (std::vector<int>{0, 1, 1, 0, 1, 0}));
  EXPECT_TRUE(queues_.nothing_to_read());
}

TEST_F(LaneQueuesTest, ALaneReadsNoMoreAtOnceThanItsShare) {
  EXPECT_TRUE(queues_.Split({}, std::vector<LaneWork>(2)).ok());
  EXPECT_EQ(Issue(), 0);
  EXPECT_EQ(Issue(), 1);
  EXPECT_EQ(Issue(), 1);
  EXPECT_EQ(Issue(), -1);
  queues_.EndReads(works_[0]);
  EXPECT_EQ(Issue(), 0);
}

TEST_F(LaneQueuesTest, ReadsAreTakenOutOfTurnWithThoseOfTheirSample) {
  StepWork later{.deadline = 200, .lane = 1};
  RowRead together[2];
  for (RowRead& read : together) read.work = &later;
  queues_.AddReads(later, {&together[0], &together[1]});
  ASSERT_TRUE(queues_.ReadsWith(together[1]).has_value());
  EXPECT_EQ(queues_.TakeReads(*queues_.ReadsWith(together[1])),
            (RowReads{&together[0], &together[1]}));
  EXPECT_EQ(queues_.TakeReads(*queues_.ReadsWith(reads_[1][1])), RowReads{&reads_[1][1]});
  EXPECT_FALSE(queues_.ReadsWith(together[0]).has_value());
  EXPECT_FALSE(queues_.ReadsWith(reads_[1][1]).has_value());
  std::vector<LaneStats> stats(2);
  queues_.AddTo(stats);
  EXPECT_EQ(stats[1].queued_reads, 2U);
  EXPECT_EQ(queues_.TakeReads(*queues_.ReadsWith(reads_[1][0])), RowReads{&reads_[1][0]});
  EXPECT_EQ(queues_.TakeReads(*queues_.ReadsWith(reads_[1][2])), RowReads{&reads_[1][2]});
}

TEST_F(LaneQueuesTest, ALaneWithoutMemoryLetsOthersGoOn) {
  queues_.HoldLane(works_[0]);
  EXPECT_EQ(Issue(), 1);
  EXPECT_EQ(Issue(), -1) << "its share, before a policy has said more, is one";
  queues_.ResumeLanes();
  EXPECT_EQ(Issue(), 0);
}

TEST_F(LaneQueuesTest, ALaneDecodesNoMoreAtOnceThanItsShare) {
  EXPECT_TRUE(queues_.Split({}, std::vector<LaneWork>(2)).ok());
  queues_.AddDecode(Task(works_[0]));
  auto urgent = Task(works_[0]);
  const DecodeTask* const raw = urgent.get();
  queues_.AddDecode(std::move(urgent), /*first=*/true);
  const std::unique_ptr<DecodeTask> first = queues_.TakeDecode(0);
  EXPECT_EQ(first.get(), raw);
  EXPECT_EQ(queues_.TakeDecode(0), nullptr);
  queues_.EndDecode(*first);
  EXPECT_NE(queues_.TakeDecode(0), nullptr);
}

TEST_F(LaneQueuesTest, LearnsWhatReadsAndDecodesTake) {
  queues_.LearnRead(reads_[1][0], 600);
  reads_[1][1].from = SampleAtNode{.bytes = 100};
  queues_.LearnRead(reads_[1][1], 900);
  DecodeTask task;
  task.work = &works_[1];
  task.stored_bytes = 100;
  task.decode_ns = 500;
  queues_.CountDecode(task);
  EXPECT_TRUE(queues_.Split({}, std::vector<LaneWork>(2)).ok());
  EXPECT_EQ(policy_.seen[0].read_ns_per_byte.storage, 0.0);
  EXPECT_EQ(policy_.seen[1].read_ns_per_byte.storage, 2.0);
  EXPECT_EQ(policy_.seen[1].read_ns_per_byte.node, 9.0);
  EXPECT_EQ(policy_.seen[1].read_ns_per_byte.tier, 0.0);
  EXPECT_EQ(policy_.seen[1].queued_bytes.storage, 600U);
  EXPECT_EQ(policy_.seen[1].queued_bytes.node, 100U);
  EXPECT_EQ(policy_.seen[1].decode_ns_per_byte, 5.0);
  std::vector<LaneStats> stats(2);
  queues_.AddTo(stats);
  EXPECT_EQ(stats[1].decode_ns, 500);
  EXPECT_EQ(stats[1].sample_bytes, 100U);
  EXPECT_EQ(stats[1].storage_read_ns, 600);
  EXPECT_EQ(stats[1].node_read_ns, 900);
  EXPECT_EQ(stats[1].tier_read_ns, 0);
  EXPECT_EQ(stats[0].storage_read_ns, 0);
  EXPECT_EQ(stats[0].queued_reads, 3U);
}

TEST_F(LaneQueuesTest, NothingIsLeftOfWhatIsDropped) {
  queues_.AddDecode(Task(works_[0]));
  queues_.Drop();
  EXPECT_FALSE(queues_.NextReads().has_value());
  EXPECT_EQ(queues_.TakeDecode(0), nullptr);
}

}  // namespace
}  // namespace headrace
