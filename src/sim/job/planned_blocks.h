#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "plan/placement/all_nodes.h"
#include "plan/placement/placement.h"

namespace headrace {

// Which blocks the tiers of all nodes are to have by a placement, and which they have by now: those
// that somebody has read since they were to have them. Chooses sources as engines do (TierCache).
//
// Thread safety: none.
// Memory: 4 bytes a block, and 2 bits a block and node.
class PlannedBlocks {
 public:
  // Where a node gets a block from.
  struct Source {
    enum class Kind : std::uint8_t { kTier, kNode, kStorage };

    Kind kind = Kind::kStorage;
    TierNumber tier = 0;       // of kTier and kNode
    NodeNumber node = 0;       // of kNode
    bool reads_first = false;  // of kNode: it has to read the block from storage
  };

  // Errors: those of PlacementFactory::MakeAllNodes()
  static Result<std::unique_ptr<PlannedBlocks>> Make(const PlacementFactory& factory,
                                                     PlacementRequest request);

  // Plans the next step; there must be one.
  void Next();

  // Of use number `number` of the node's in this step. From now on the node has the block, if it is
  // to have it, and so has the node that gives it. In the order of the uses.
  Source TakeUse(NodeNumber node, std::size_t number);

  // The node has read all for this step. `ahead`: whether its tiers may read ahead.
  void EndStep(NodeNumber node, bool ahead);

  // The next block that the node reads from storage for its tiers alone. It has it from now on.
  std::optional<std::uint32_t> TakeAhead(NodeNumber node);

 private:
  PlannedBlocks(std::unique_ptr<AllNodes> placement, std::uint64_t blocks, std::size_t nodes);

  [[nodiscard]] NodeNumber nodes() const { return static_cast<NodeNumber>(held_.size()); }
  [[nodiscard]] NodeNumber ReaderOf(std::uint32_t block) const;
  Source TakeFrom(NodeNumber node, TierNumber tier, std::uint32_t block);

  const std::unique_ptr<AllNodes> placement_;
  const bool plans_all_;  // all nodes together
  NodesStep step_;
  std::vector<std::vector<bool>> wanted_;  // by node and block
  std::vector<std::vector<bool>> held_;
  std::vector<std::deque<std::uint32_t>> ahead_;  // by node: blocks to read for its tiers
  std::vector<NodeNumber> holders_;               // by block: how many nodes are to have it
};

}  // namespace headrace
