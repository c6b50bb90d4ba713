#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/order_factory.h"

namespace headrace {

// The blocks that the nodes of a job use in one step. A block is what a tier keeps as a whole: the
// order's block if it reads blocks, otherwise a single sample (a BlockMap of blocks of one).
struct StepUses {
  Position at;
  bool ends_epoch = false;
  std::vector<std::uint32_t> blocks;     // node after node, each in the order of its deliveries
  std::vector<std::uint64_t> node_ends;  // ascending ends in `blocks`, one a node

  [[nodiscard]] std::span<const std::uint32_t> OfNode(std::uint32_t node) const {
    const std::uint64_t begin = node == 0 ? 0 : node_ends[node - 1];
    return std::span(blocks).subspan(begin, node_ends[node] - begin);
  }
};

// The uses of every node of a job, step after step.
//
// Thread safety: none.
class UseStream {
 public:
  virtual ~UseStream() = default;

  // Stores the next step in `uses`, reusing its memory; returns false after the last.
  virtual bool Next(StepUses& uses) = 0;
};

// Rank r is on node r / ranks_per_node; the last node may have fewer ranks.
struct NodeSplit {
  std::uint32_t world_size = 1;
  std::uint32_t ranks_per_node = 1;

  [[nodiscard]] std::uint32_t nodes() const {
    return (world_size + ranks_per_node - 1) / ranks_per_node;
  }
};

// The uses of `factory`'s order, with every rank of request.job (whose own ranks do not matter). A
// node's uses are those of one stream of all its ranks: a block read counts once, whatever ranks it
// serves and however many of its samples it keeps; each delivery without a block read counts once,
// after the step's reads.
//
// `exact` takes about 15 ns a sample, for any number of ranks; another order, and a mixture, takes
// the time to plan every node.
//
// Errors: those of OrderFactory::Make
//         InvalidArgument  2^32 - 1 blocks or more, blocks that do not hold the order's samples,
//                          ranks_per_node of 0, a world_size that is not the order's
Result<std::unique_ptr<UseStream>> MakeOrderUses(const OrderFactory& factory,
                                                 const OrderRequest& request,
                                                 std::shared_ptr<const BlockMap> blocks,
                                                 const NodeSplit& split, Position start);

// The uses of an order that is known one epoch at a time: one node, from list.first_step on. A
// block is a sample.
std::unique_ptr<UseStream> MakeListUses(const ListOrderOptions& list);

}  // namespace headrace
