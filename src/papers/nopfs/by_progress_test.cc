#include "papers/nopfs/by_progress.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

std::unique_ptr<Placement> Numbered(const PlacementFactory& factory, PlacementRequest request) {
  request.numbers_inserts = true;
  auto made = factory.Make(std::move(request));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

class EveryByProgressTest : public testing::TestWithParam<const PlacementFactory*> {};

// Every node numbers the inserts of all as they number their own.
TEST_P(EveryByProgressTest, NodesNumberEachOthersInsertsAlike) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case made = RandomCase(seed);
    std::vector<std::unique_ptr<Placement>> nodes;
    std::vector<std::uint32_t> inserted(made.nodes());
    std::vector<std::vector<std::uint32_t>> numbers(made.nodes());  // [node][block]
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      nodes.push_back(Numbered(*GetParam(), made.Of(node)));
      numbers[node].resize(made.units.size());
    }
    for (std::size_t step = 0; step < made.steps->size(); ++step) {
      for (std::uint32_t node = 0; node < made.nodes(); ++node) {
        const std::optional<PlacedStep> placed = nodes[node]->Next();
        ASSERT_TRUE(placed.has_value());
        for (const CacheOp& op : placed->ops) {
          if (op.from == kNoTier) numbers[node][op.block] = ++inserted[node];
        }
      }
      for (std::uint32_t block = 0; block < made.units.size(); ++block) {
        for (std::uint32_t other = 0; other < made.nodes(); ++other) {
          const std::optional<BlockHolder> holder = nodes[0]->Holder(block, other);
          if (!holder.has_value() || holder->node != other) continue;
          for (std::uint32_t node = 0; node < made.nodes(); ++node) {
            ASSERT_EQ(nodes[node]->InsertNumber(block, other), numbers[other][block])
                << "step " << step << " block " << block << " of node " << other << " by " << node;
          }
        }
      }
    }
  }
}

// Whoever is done with all inserts asks for what the plan says; and the plan is the same.
TEST_P(EveryByProgressTest, WhoeverHasInsertedAllAsksForAll) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case made = RandomCase(seed);
    const std::unique_ptr<Placement> plan = Numbered(*GetParam(), made.Of(0));
    const std::unique_ptr<Placement> by_progress =
        MakeByProgress(Numbered(*GetParam(), made.Of(0)), 0,
                       [] { return std::numeric_limits<std::uint32_t>::max() / 2; });
    while (std::optional<PlacedStep> step = plan->Next()) {
      const std::optional<PlacedStep> other = by_progress->Next();
      ASSERT_TRUE(other.has_value());
      ASSERT_EQ(step->uses, other->uses);
      ASSERT_EQ(step->ops, other->ops);
      ASSERT_EQ(plan->OwnersSum(), by_progress->OwnersSum());
      for (std::uint32_t block = 0; block < made.units.size(); ++block) {
        ASSERT_EQ(plan->Holder(block, 0), by_progress->Holder(block, 0));
      }
    }
    ASSERT_FALSE(by_progress->Next().has_value());
  }
}

// What comes from another node came to it with an insert that is not ahead of this node's.
TEST_P(EveryByProgressTest, NobodyIsAskedForWhatItInsertsLaterThanThisNode) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case made = RandomCase(seed);
    std::uint32_t filled = 0;
    const std::unique_ptr<Placement> plan = Numbered(*GetParam(), made.Of(0));
    const std::unique_ptr<Placement> by_progress =
        MakeByProgress(Numbered(*GetParam(), made.Of(0)), 0, [&] { return filled; });
    const auto there = [&](std::uint32_t block, std::uint32_t node) {
      const std::uint32_t number = plan->InsertNumber(block, node);
      return number == 0 || number <= filled;
    };
    while (std::optional<PlacedStep> other = by_progress->Next()) {
      const std::optional<PlacedStep> step = plan->Next();
      ASSERT_EQ(step->ops, other->ops);
      for (std::size_t i = 0; i < step->uses.size(); ++i) {
        const PlannedUse& planned = step->uses[i];
        const PlannedUse& use = other->uses[i];
        ASSERT_EQ(planned.tier, use.tier);
        if (use.at_peer) {
          ASSERT_TRUE(planned.at_peer);
          ASSERT_NE(use.peer, 0U);
          ASSERT_TRUE(there(use.block, use.peer));
        } else if (planned.at_peer) {
          ASSERT_FALSE(there(use.block, planned.peer));
        }
      }
      for (std::uint32_t block = 0; block < made.units.size(); ++block) {
        std::optional<BlockHolder> holder = plan->Holder(block, 0);
        while (holder.has_value() && holder->node != 0 && !there(block, holder->node)) {
          holder = plan->Holder(block, holder->node + 1);
        }
        ASSERT_EQ(by_progress->Holder(block, 0), holder);
      }
      // This node is some inserts behind its plan.
      for (const CacheOp& op : step->ops) filled += op.from == kNoTier && op.block % 3 != 0 ? 1 : 0;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, EveryByProgressTest, testing::ValuesIn(Placements().rows()),
                         [](const auto& each) { return std::string(each.param->name()); });

}  // namespace
}  // namespace headrace
