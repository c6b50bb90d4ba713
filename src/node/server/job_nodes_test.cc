#include "node/server/job_nodes.h"

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/exact_order.h"
#include "plan/placement/placement.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSamples = 96;
constexpr NodeNumber kNodes = 2;

// Two nodes of a job with one rank each, as their node processes have them.
class JobNodesTest : public testing::Test {
 protected:
  JobNodesTest() {
    std::vector<std::string> addresses;
    for (NodeNumber node = 0; node < kNodes; ++node) {
      OpenSession open;
      open.options.job = {.sample_count = kSamples,
                          .batch_size = 4,
                          .world_size = kNodes,
                          .rank = node,
                          .seed = 3,
                          .epochs = 3};
      open.options.nodes = PeerListen{};
      auto made = JobNodes::Make(open, [] { return true; });
      EXPECT_TRUE(made.ok()) << made.status().message();
      nodes_.push_back(std::move(made).value());
      addresses.push_back(nodes_.back()->address());
    }
    for (NodeNumber node = 0; node < kNodes; ++node) {
      EXPECT_TRUE(
          nodes_[node]->Connect({.node = node, .addresses = addresses, .token = "secret"}).ok());
    }
  }

  // All nodes begin a run.
  void Begin() {
    std::vector<std::future<Status>> begun;
    for (const auto& node : nodes_) {
      begun.push_back(std::async(std::launch::async, [&node] {
        return node->Agree({.start = {}, .capacity_units = {30}, .held = {{}}}).status();
      }));
    }
    for (auto& each : begun) {
      const Status status = each.get();
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  // The plan of a node, which tells the others what it comes to. `held`: what it believes that the
  // nodes hold at the start.
  std::unique_ptr<Placement> Plan(NodeNumber node, std::string_view policy,
                                  std::vector<std::vector<std::vector<std::uint32_t>>> held = {}) {
    PlacementRequest request{.blocks = MakeUniformBlocks(kSamples, 1),
                             .node = node,
                             .capacity_units = {{30}, {30}},
                             .held = std::move(held)};
    request.uses = [job = Job(), blocks = request.blocks] {
      return MakeOrderUses(ExactOrderFactory(), {.job = job}, blocks,
                           {.world_size = kNodes, .ranks_per_node = 1}, {});
    };
    auto made =
        MakeSummedPlacement(*Placements().Find(policy), std::move(request),
                            [this, node](const StepSums& sums) { nodes_[node]->Plan(sums); });
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }

  [[nodiscard]] static OrderOptions Job() {
    return {
        .sample_count = kSamples, .batch_size = 4, .world_size = kNodes, .seed = 3, .epochs = 3};
  }

  static std::uint64_t RunToTheEnd(Placement& plan) {
    std::uint64_t steps = 0;
    while (plan.Next().has_value()) ++steps;
    return steps;
  }
  void AwaitCompared(std::uint64_t steps) const {
    for (const auto& node : nodes_) {
      while (node->traffic().compared_steps < steps) std::this_thread::yield();
    }
  }

  std::vector<std::shared_ptr<JobNodes>> nodes_;
};

TEST_F(JobNodesTest, NodesThatBeginARunOtherwiseAreRefused) {
  const auto said = [&](const NodeFacts& one, const NodeFacts& other) {
    auto first = std::async(std::launch::async, [&] { return nodes_[0]->Agree(one).status(); });
    const Status second = nodes_[1]->Agree(other).status();
    EXPECT_EQ(first.get().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
    return std::string(second.message());
  };
  EXPECT_EQ(said({.start = {.epoch = 1, .step = 2}}, {.start = {}}),
            "node 1 begins a run with node 0: this node begins at epoch 0 step 0, the other at "
            "epoch 1 step 2; all ranks must iterate alike, from the same state");
  EXPECT_EQ(
      said({.capacity_units = {30}}, {.capacity_units = {31}}),
      "node 1 begins a run with node 0: their tiers have other capacities; give all nodes the "
      "same");
  const Status again = nodes_[0]->Connect({.node = 0, .addresses = {"a:1"}, .token = "secret"});
  EXPECT_EQ(again.message(),
            "connecting node 0: got 1 addresses for node 0; the job has 2 nodes, by its world size "
            "and the ranks on this node");
}

TEST_F(JobNodesTest, EveryStepOfEqualPlansIsComparedAndNoneDiffers) {
  for (std::uint64_t run = 1; run <= 2; ++run) {
    Begin();
    for (NodeNumber node = 0; node < kNodes; ++node) {
      EXPECT_EQ(RunToTheEnd(*Plan(node, "coordinated")), 36U);
    }
    AwaitCompared(36 * run);
    for (const auto& node : nodes_) EXPECT_TRUE(node->TakeDifference().ok());
  }
}

TEST_F(JobNodesTest, OtherBeliefsOfWhatNodesHoldAreFoundInTheOwnersOfTheFirstStep) {
  Begin();
  RunToTheEnd(*Plan(0, "first_touch"));
  RunToTheEnd(*Plan(1, "first_touch", {{{1, 2, 3}}, {{}}}));
  AwaitCompared(36);
  const Status one = nodes_[0]->TakeDifference();
  EXPECT_EQ(one.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(one.message()),
      AllOf(HasSubstr("node 0 plans like node 1: their plans differ at step 0 of epoch 0 in "
                      "owners"),
            HasSubstr("the first that was compared")));
  EXPECT_THAT(std::string(nodes_[1]->TakeDifference().message()),
              HasSubstr("node 1 plans like node 0"));
  EXPECT_TRUE(nodes_[0]->TakeDifference().ok()) << "once is enough";
}

TEST_F(JobNodesTest, OtherSamplesAreFoundInTheIdsOfTheirStep) {
  Begin();
  RunToTheEnd(*Plan(0, "coordinated"));
  auto same = Plan(1, "coordinated");
  for (int step = 0; step < 14; ++step) ASSERT_TRUE(same->Next().has_value());
  nodes_[1]->Plan({.at = {.epoch = 1, .step = 2}, .ends_epoch = true, .ids = 1});
  AwaitCompared(15);
  for (const auto& node : nodes_) {
    EXPECT_THAT(std::string(node->TakeDifference().message()),
                AllOf(HasSubstr("differ at step 2 of epoch 1 in ids"),
                      HasSubstr("were equal at step 1 of epoch 1")));
  }
}

TEST_F(JobNodesTest, ADifferenceThatNobodyTookEndsTheNextRunBeforeItBegins) {
  Begin();
  nodes_[0]->Plan({.at = {}, .users = 1});
  nodes_[1]->Plan({.at = {}, .users = 2});
  AwaitCompared(1);
  const Status begun = nodes_[0]->Agree({}).status();
  EXPECT_THAT(std::string(begun.message()), HasSubstr("step 0 of epoch 0 in users"));
}

}  // namespace
}  // namespace headrace
