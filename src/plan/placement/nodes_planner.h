#pragma once

// Shared by the placements that plan all nodes together. For placements only.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/placement/all_nodes.h"
#include "plan/placement/placement.h"
#include "plan/placement/tiers.h"

namespace headrace::placement {

// The base of placements that plan all nodes together: the tiers of all nodes, and their way from
// step to step. It reports the plan of one node, or, with RecordAll(), leaves that to the caller,
// who takes Enter() and Advance() in place of Next().
class NodesPlanner : public Planner {
 public:
  std::optional<PlacedStep> Next() final;
  [[nodiscard]] std::map<std::string, double> counters() const override;
  [[nodiscard]] std::optional<BlockHolder> Holder(std::uint32_t block,
                                                  std::uint32_t from) const override;
  [[nodiscard]] std::uint32_t InsertNumber(std::uint32_t block, std::uint32_t node) const override {
    return nodes_[node].InsertNumber(block);
  }
  [[nodiscard]] std::uint64_t OwnersSum() const override;

  // Keeps the ops of all nodes from here on. Before the first step.
  void RecordAll();
  // The uses of the next step, valid until the next call; null after the last step.
  virtual const StepUses* Enter() = 0;
  // Changes the tiers of all nodes for the step that was entered.
  virtual void Advance() = 0;

  // The tiers of all nodes, with the ops of the step.
  [[nodiscard]] std::vector<NodeTiers>& tiers() { return nodes_; }
  // The source of a block for a node now: the node's own tier, or the next node after it,
  // cyclically, that has the block: see PlacementRequest::fastest_peer.
  [[nodiscard]] PlannedUse LocateFor(std::uint32_t node, std::uint32_t block) const;
  // Units of the blocks that are in a tier of any node.
  [[nodiscard]] double CoverageUnits() const;
  // The table of nodes_, if it is one of lists; otherwise null.
  [[nodiscard]] HolderLists* lists() const { return lists_.get(); }
  using Planner::block_count;
  using Planner::sizes;

 protected:
  explicit NodesPlanner(PlacementRequest request);

  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const final {
    return LocateFor(node(), block);
  }
  // The first node but `each` that has the block; there must be one.
  [[nodiscard]] std::uint32_t OtherHolder(std::uint32_t each, std::uint32_t block) const;

  const std::shared_ptr<HolderLists> lists_;  // null: nodes_ share a table of bytes
  std::vector<NodeTiers> nodes_;

 private:
  [[nodiscard]] PlannedUse LocateInLists(std::uint32_t node, std::uint32_t block) const;
  // The tiers of all nodes that have a block, by node, if they share a table of bytes.
  [[nodiscard]] std::span<const TierNumber> Row(std::uint32_t block) const {
    return {bytes_ + block * count_, count_};
  }

  const std::size_t count_;  // of nodes
  const TierNumber* bytes_;  // null: lists_
};

// The base of those that read their uses only as far as the step that they plan.
class SteppedPlanner : public NodesPlanner {
 public:
  const StepUses* Enter() final { return stream_->Next(uses_) ? &uses_ : nullptr; }

 protected:
  SteppedPlanner(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : NodesPlanner(std::move(request)), stream_(std::move(stream)) {}

  [[nodiscard]] const StepUses& uses() const { return uses_; }

 private:
  const std::unique_ptr<UseStream> stream_;
  StepUses uses_;
};

// Reports the plans of all nodes that `planner`, of which no step was taken yet, makes.
std::unique_ptr<AllNodes> ReportAllNodes(std::unique_ptr<NodesPlanner> planner);

// A factory for a NodesPlanner, as FactoryOf; plans all nodes in one pass.
template <typename Policy>
class NodesFactoryOf final : public FactoryOf<Policy> {
 public:
  using FactoryOf<Policy>::FactoryOf;

  [[nodiscard]] Result<std::unique_ptr<AllNodes>> MakeAllNodes(
      PlacementRequest request) const override {
    request.node = 0;
    request.numbers_inserts = false;
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Placement> made, this->Make(std::move(request)));
    return ReportAllNodes(std::unique_ptr<NodesPlanner>(static_cast<Policy*>(made.release())));
  }
};

}  // namespace headrace::placement
