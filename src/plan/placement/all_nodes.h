#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

// A placement's plan for one step of every node, node after node: for each what PlacedStep has.
struct NodesStep {
  Position at;
  bool ends_epoch = false;
  std::vector<PlannedUse> uses;
  std::vector<std::uint64_t> use_ends;  // ascending ends in `uses`, one a node
  std::vector<CacheOp> ops;
  std::vector<std::uint64_t> op_ends;  // ascending ends in `ops`, one a node

  [[nodiscard]] std::span<const PlannedUse> UsesOf(std::uint32_t node) const {
    return Part(uses, use_ends, node);
  }
  [[nodiscard]] std::span<const CacheOp> OpsOf(std::uint32_t node) const {
    return Part(ops, op_ends, node);
  }

 private:
  template <typename Each>
  static std::span<const Each> Part(const std::vector<Each>& all,
                                    const std::vector<std::uint64_t>& ends, std::uint32_t node) {
    const std::uint64_t begin = node == 0 ? 0 : ends[node - 1];
    return std::span(all).subspan(begin, ends[node] - begin);
  }
};

// The plans of all nodes of a job, step after step: what a Placement for each of them yields.
// For whoever looks at a whole job, as a simulator does; a node of a job plans with a Placement.
// PlacementFactory::MakeAllNodes() makes it.
//
// Thread safety: none.
class AllNodes {
 public:
  virtual ~AllNodes() = default;

  // Stores the next step in `step`, reusing its memory; returns false after the last.
  virtual bool Next(NodesStep& step) = 0;

  // Those of Placement::counters(), summed over all nodes; coverage_units, which is of all nodes
  // together, as any one of them has it.
  [[nodiscard]] virtual std::map<std::string, double> counters() const = 0;
};

// One Placement of `factory` for each node, each asked for a step in turn: for placements that do
// not plan all nodes together. They read one stream of uses.
//
// Memory: that of all placements, and the steps that one of them has read and another has not.
// Cost: that of all placements; each also copies every step of the stream.
// Errors: those of PlacementFactory::Make
Result<std::unique_ptr<AllNodes>> MakeSideBySide(const PlacementFactory& factory,
                                                 PlacementRequest request);

}  // namespace headrace
