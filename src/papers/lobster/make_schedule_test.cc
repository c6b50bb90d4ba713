#include "papers/lobster/make_schedule.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/lobster/testing/schedule_bytes.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// Steps as they are given.
class ListedOrder : public Order {
 public:
  explicit ListedOrder(std::vector<Step> steps) : steps_(std::move(steps)) {}
  std::optional<Step> Next() override {
    return at_ < steps_.size() ? std::optional(steps_[at_++]) : std::nullopt;
  }

 private:
  std::vector<Step> steps_;
  std::size_t at_ = 0;
};

class ListedPlacement : public Placement {
 public:
  explicit ListedPlacement(std::vector<PlacedStep> steps) : steps_(std::move(steps)) {}
  std::optional<PlacedStep> Next() override {
    return at_ < steps_.size() ? std::optional(steps_[at_++]) : std::nullopt;
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  std::vector<PlacedStep> steps_;
  std::size_t at_ = 0;
};

// Two lanes, ranks 2 and 3; samples 0 to 3 in the first step, 4 to 6 in the second.
std::vector<Step> Steps() {
  const auto delivery = [](std::uint64_t sample, std::uint32_t rank, std::uint32_t slot) {
    return Delivery{.sample = SampleId{sample}, .rank = rank, .slot = slot};
  };
  Step first{.epoch = 1, .step = 0};
  first.deliveries = {delivery(0, 2, 0), delivery(1, 2, 1), delivery(2, 3, 0), delivery(3, 3, 1)};
  Step second{.epoch = 1, .step = 1, .ends_epoch = true};
  second.deliveries = {delivery(4, 2, 0), delivery(5, 3, 0), delivery(6, 3, 1)};
  return {first, second};
}

// Samples of one block each; 1 is in a tier of the node, 2 in a peer's, 0 and 3 are nowhere.
std::vector<PlacedStep> Placed() {
  PlacedStep first{.at = {.epoch = 1, .step = 0}};
  first.uses = {{.block = 0},
                {.block = 1, .tier = 0},
                {.block = 2, .peer = 1, .at_peer = true},
                {.block = 3}};
  first.ops = {{.block = 1, .from = 0}, {.block = 0, .to = 0}};
  PlacedStep second{.at = {.epoch = 1, .step = 1}};
  second.uses = {{.block = 4}, {.block = 5, .tier = 1}, {.block = 6, .tier = 0}};
  return {first, second};
}

struct Job {
  ListedOrder order{Steps()};
  ListedPlacement placement{Placed()};
  std::shared_ptr<const BlockMap> blocks = MakeUniformBlocks(7, 1);
  std::vector<std::vector<LaneDemand>> asked;  // of the threads
  ScheduleRequest request;

  Job() {
    request.header = {.world_size = 4,
                      .first_rank = 2,
                      .lanes = 2,
                      .loading_threads = 8,
                      .decode_threads = 4,
                      .start = {.epoch = 1, .step = 0}};
    request.order = &order;
    request.placement = &placement;
    request.blocks = blocks.get();
    request.sample_bytes = [](SampleId sample) { return 100 + Raw(sample); };
    request.threads = [this](std::span<const LaneDemand> lanes) {
      asked.emplace_back(lanes.begin(), lanes.end());
      const auto loading = static_cast<std::uint32_t>(asked.size());
      return std::vector<LaneThreads>{{.loading = loading, .decode = 1},
                                      {.loading = 4, .decode = 3}};
    };
  }
};

Result<std::uint64_t> Make(const ScheduleRequest& request, Bytes& file) {
  return MakeSchedule(request, Into(file));
}

TEST(MakeScheduleTest, AsksForTheThreadsOfEveryStepWithWhatItNeeds) {
  Job job;
  Bytes file;
  const auto made = Make(job.request, file);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made.value(), 2U);
  ASSERT_EQ(job.asked.size(), 2U);
  EXPECT_THAT(job.asked[0],
              ElementsAre(LaneDemand{.samples = 2, .tier_bytes = {101}, .storage_bytes = 100},
                          LaneDemand{.samples = 2, .peer_bytes = 102, .storage_bytes = 103}));
  EXPECT_THAT(job.asked[1], ElementsAre(LaneDemand{.samples = 1, .storage_bytes = 104},
                                        LaneDemand{.samples = 2, .tier_bytes = {106, 105}}));

  auto reader = ScheduleReader::Open({.bytes = file, .name = "a.schedule"});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader.value().header(), job.request.header);
  ScheduledStep step;
  ASSERT_TRUE(reader.value().Next(step).value());
  EXPECT_EQ(step.at, (Position{.epoch = 1, .step = 0}));
  EXPECT_EQ(step.ops, Placed()[0].ops);
  EXPECT_THAT(step.lanes, ElementsAre(LaneThreads{1, 1}, LaneThreads{4, 3}));
  ASSERT_TRUE(reader.value().Next(step).value());
  EXPECT_THAT(step.lanes, ElementsAre(LaneThreads{2, 1}, LaneThreads{4, 3}));
  EXPECT_TRUE(step.ops.empty());
  EXPECT_FALSE(reader.value().Next(step).value());
}

TEST(MakeScheduleTest, WithoutAPlacementAllComesFromStorage) {
  Job job;
  job.request.placement = nullptr;
  job.request.blocks = nullptr;
  job.request.steps_max = 1;
  Bytes file;
  EXPECT_EQ(Make(job.request, file).value(), 1U);
  EXPECT_THAT(job.asked, ElementsAre(ElementsAre(LaneDemand{.samples = 2, .storage_bytes = 201},
                                                 LaneDemand{.samples = 2, .storage_bytes = 205})));
}

TEST(MakeScheduleTest, MistakesAreNamed) {
  Bytes file;
  {
    Job job;
    job.request.header.lanes = 1;
    const Status status = Make(job.request, file).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "making a schedule: step 0 of epoch 1 delivers to rank 3, the lanes are 1 rank from "
              "2 on; make both of one job");
  }
  {
    Job job;
    std::vector<PlacedStep> placed = Placed();
    placed[1].at.step = 2;
    job.placement = ListedPlacement(placed);
    const Status status = Make(job.request, file).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the placement at step 2 of epoch 1"));
    placed.pop_back();
    job.order = ListedOrder(Steps());
    job.placement = ListedPlacement(placed);
    EXPECT_THAT(std::string(Make(job.request, file).status().message()),
                HasSubstr("the placement ends before step 1 of epoch 1"));
  }
  {
    Job job;
    job.order = ListedOrder({});
    EXPECT_THAT(std::string(Make(job.request, file).status().message()),
                HasSubstr("the order has no step"));
    job.order = ListedOrder(Steps());
    job.placement = ListedPlacement(Placed());
    job.request.header.loading_threads = 2;
    EXPECT_THAT(std::string(Make(job.request, file).status().message()),
                HasSubstr("5 loading and 4 decode threads, there are 2 and 4"));
    job.request.header.lanes = 0;
    EXPECT_THAT(std::string(Make(job.request, file).status().message()), HasSubstr("lanes: got 0"));
  }
}

}  // namespace
}  // namespace headrace
