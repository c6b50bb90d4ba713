#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry/registry.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/uses.h"

namespace headrace {

inline constexpr std::size_t kTiersMax = 8;  // of a node

// A change to the blocks that a node's tiers keep: from kNoTier it is an insert, to kNoTier an
// eviction, otherwise a move.
//
// From an insert on, the tier is *wanted* to have the block: the next read of the block, from any
// source, puts it there. An insert that is `ahead` is of a block that the step does not use: it may
// be read for the tier alone, before its first use.
struct CacheOp {
  std::uint32_t block = 0;
  TierNumber from = kNoTier;
  TierNumber to = kNoTier;
  bool ahead = false;

  friend bool operator==(const CacheOp&, const CacheOp&) = default;
};

// One use of a block by the node, and the planned source of its bytes.
struct PlannedUse {
  std::uint32_t block = 0;
  TierNumber tier = kNoTier;       // of the node; kNoTier: not there
  std::uint32_t peer = 0;          // another node that has it, if `at_peer`, ...
  TierNumber peer_tier = kNoTier;  // ... and its tier there
  bool at_peer = false;  // if `tier` has it: only where PlacementRequest::fastest_peer asks

  friend bool operator==(const PlannedUse&, const PlannedUse&) = default;
};

// A placement's plan for one step of its node's stream. Every use sees the tiers of all nodes as
// they were before the step's ops; then the ops are applied in sequence. After none of them do the
// wanted blocks of a tier exceed its capacity. A block may be evicted and inserted in one step,
// where full tiers exchange blocks.
struct PlacedStep {
  Position at;
  std::vector<PlannedUse> uses;  // in the order of StepUses
  std::vector<CacheOp> ops;
};

// A node whose tiers are to have a block, and the tier there.
struct BlockHolder {
  std::uint32_t node = 0;
  TierNumber tier = kNoTier;

  friend bool operator==(const BlockHolder&, const BlockHolder&) = default;
};

// Plans the tiers, step for step with the order's own stream. Pure, as all of plan/: every node
// makes its own and comes to the same plan for all nodes.
//
// Thread safety: none.
class Placement {
 public:
  virtual ~Placement() = default;

  // The next step; std::nullopt after the last.
  virtual std::optional<PlacedStep> Next() = 0;

  // The first node, by number, from node `from` on, whose tiers are to have `block` after the
  // newest step; std::nullopt: none, or the placement plans for its own node alone.
  [[nodiscard]] virtual std::optional<BlockHolder> Holder(std::uint32_t /*block*/,
                                                          std::uint32_t /*from*/) const {
    return std::nullopt;
  }

  // The node that reads `block` from storage for all `nodes` of the job that are to have it: of
  // these the first from node block % nodes on, cyclically, so that nodes share the reading.
  [[nodiscard]] std::optional<BlockHolder> Reader(std::uint32_t block, std::uint32_t nodes) const {
    const std::optional<BlockHolder> holder = Holder(block, block % nodes);
    return holder.has_value() ? holder : Holder(block, 0);
  }

  // Samples that `node` was to insert into its tiers, up to those of its newest insert of `block`,
  // modulo 2^32; 0: it held the block at the start. Of a node that is to have the block, and only
  // if the request says that inserts are numbered.
  [[nodiscard]] virtual std::uint32_t InsertNumber(std::uint32_t /*block*/,
                                                   std::uint32_t /*node*/) const {
    return 0;
  }
  // How many nodes read storage in the newest step: see readers/storage_readers.h. std::nullopt:
  // nobody counts them.
  [[nodiscard]] virtual std::optional<std::uint32_t> StorageReaders() const { return std::nullopt; }

  // A number for what the tiers of all nodes are to have after the newest step: equal on all nodes
  // if their plans are. 0: the placement plans for its own node alone.
  [[nodiscard]] virtual std::uint64_t OwnersSum() const { return 0; }

  // Counters since the planner was made, by name, for its node. Each is a number of uses or ops;
  // with `_units` appended, the sum of their blocks' units. docs/placements.md explains them.
  //   uses = local + peer + storage   by source; local: a tier of the node
  //   reuse                           of local: the copy was there since an earlier use, or was
  //                                   held at the start; not loaded ahead of its first use
  //   inserted, ahead                 ops; ahead: inserts of blocks that their step does not use
  //   moved, evicted                  ops
  // Placements that plan all nodes together (all except none, lru and belady) also have
  // coverage_units: units of the blocks that are in a tier of any node now. The call takes
  // O(blocks) there.
  [[nodiscard]] virtual std::map<std::string, double> counters() const = 0;
};

// How placements that plan all nodes together keep which node has which block. Changes no plan.
enum class NodeTables {
  kSmaller,  // of the two below the one that takes less memory; bytes up to 64 nodes
  kBytes,    // a byte a block and node
  kLists,    // for each block a list of the nodes that have it
};

// The inputs of a placement.
struct PlacementRequest {
  std::shared_ptr<const BlockMap> blocks;  // what tiers keep, and the units of each
  std::uint32_t node = 0;                  // the node that this plan is for
  // Units of blocks->unit_bytes() of each tier of each node, [node][tier], fastest first.
  std::vector<std::vector<std::uint64_t>> capacity_units;
  // Blocks that tiers hold at the start, [node][tier], for `lru` the most recently used first;
  // empty: none. The ops of the first step evict those that are not wanted.
  std::vector<std::vector<std::vector<std::uint32_t>>> held;
  std::uint64_t horizon_epochs = 16;  // how many epochs ahead uses are seen, at least 1
  std::uint64_t seed = 0;             // of random choices
  bool numbers_inserts = false;       // for InsertNumber(): 4 bytes a block and node
  // Whether a use names the other node whose tier is the fastest by its number, also where a tier
  // of this node has the block; else the next node by number, where none has. Changes no op.
  bool fastest_peer = false;
  NodeTables tables = NodeTables::kSmaller;
  // Makes a stream of all uses from the start of the run on; called as often as needed while the
  // placement is made.
  std::function<Result<std::unique_ptr<UseStream>>()> uses;
  // Asked often while a long period is planned; empty: nobody asks. Once it returns false it does
  // so always, and the plan changes no more: who asked does not run the step.
  std::function<bool()> keep_going;
};

class AllNodes;  // plan/placement/all_nodes.h

// Makes one kind of placement. A new one is one new file and one row of Placements().
// Stateless.
//
// Thread safety: every method may be called from any thread.
class PlacementFactory {
 public:
  virtual ~PlacementFactory() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Whether it uses knowledge of future uses; otherwise of past uses only.
  [[nodiscard]] virtual bool clairvoyant() const = 0;
  // Whether tiers are of use to it.
  [[nodiscard]] virtual bool keeps_blocks() const { return true; }

  // Errors: InvalidArgument  a node that does not exist, tiers beyond kTiersMax, 2^32 - 1 blocks or
  //                          more, held blocks that do not fit or are twice in a node, a horizon of
  //                          0, `reuse` with 2^16 nodes or more; those of request.uses
  [[nodiscard]] virtual Result<std::unique_ptr<Placement>> Make(PlacementRequest request) const = 0;

  // The plans of all nodes at once; request.node and numbers_inserts are not used. The default
  // makes a placement for each node (MakeSideBySide), at the cost and memory of all of them; those
  // that plan all nodes together do so once.
  //
  // Errors: those of Make()
  [[nodiscard]] virtual Result<std::unique_ptr<AllNodes>> MakeAllNodes(
      PlacementRequest request) const;
};

Registry<PlacementFactory>& Placements();

}  // namespace headrace
