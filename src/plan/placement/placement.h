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
#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/uses.h"

namespace headrace {

// Position of a tier in its node's list, fastest first.
using TierNumber = std::uint8_t;

inline constexpr TierNumber kNoTier = 0xff;  // storage, or nowhere
inline constexpr std::size_t kTiersMax = 8;  // of a node

// A change to what the tiers of a node keep: from kNoTier it is an insert, to kNoTier an eviction,
// else a move.
//
// From an insert on, the tier is *wanted* to have the block: whoever reads it puts it there, from
// wherever the use found it. An insert that is `ahead` is of a block that the step does not use: it
// may be read for that alone, before its first use.
struct CacheOp {
  std::uint32_t block = 0;
  TierNumber from = kNoTier;
  TierNumber to = kNoTier;
  bool ahead = false;

  friend bool operator==(const CacheOp&, const CacheOp&) = default;
};

// One use of a block by the node, and where the plan says that its bytes come from.
struct PlannedUse {
  std::uint32_t block = 0;
  TierNumber tier = kNoTier;  // of the node; kNoTier: not there
  std::uint32_t peer = 0;     // a node whose tier has it, if `at_peer`
  bool at_peer = false;

  friend bool operator==(const PlannedUse&, const PlannedUse&) = default;
};

// What a placement says of one step of its node's stream. Order: every use finds what the tiers of
// all nodes have before the step's ops, those of the node and of its peers; then the ops are
// applied, one after the other. After none of them do the wanted blocks of a tier take more than
// its capacity. A block may go and come back in one step, which is where tiers that are full change
// blocks.
struct PlacedStep {
  Position at;
  std::vector<PlannedUse> uses;  // in the order of StepUses
  std::vector<CacheOp> ops;
};

// What tiers do, step for step with the order's own stream. Pure, as all of plan/: every node makes
// its own and comes to the same plan of all of them. Not thread-safe.
class Placement {
 public:
  virtual ~Placement() = default;

  // The next step, or nothing after the last.
  virtual std::optional<PlacedStep> Next() = 0;

  // What the planner counted since it was made, by name, for its node. Each is a number of uses or
  // ops; with `_units` behind it, the sum of their blocks' units. docs/placements.md says more.
  //   uses = local + peer + storage   by where they were found; local: in a tier of the node
  //   reuse                           of local: the copy was there since a use before, or was held
  //                                   at the start; not one that was loaded ahead of its first use
  //   inserted, ahead                 ops; ahead: of the inserts, those for no use of their step
  //   moved, evicted                  ops
  // Placements that plan all nodes together (all but none, lru and belady) have coverage_units,
  // too: units of the blocks that are in a tier of any node now. Takes O(blocks) there.
  [[nodiscard]] virtual std::map<std::string, double> counters() const = 0;
};

// What a placement is made from.
struct PlacementRequest {
  std::shared_ptr<const BlockMap> blocks;  // what tiers keep, and units of each
  std::uint32_t node = 0;                  // whose steps the stream holds
  // Units of blocks->unit_bytes() of each tier of each node, [node][tier], fastest first.
  std::vector<std::vector<std::uint64_t>> capacity_units;
  // Blocks that tiers hold at the start, [node][tier], for `lru` the one used last first; empty:
  // nothing is known to be held. Those not wanted are evicted by the ops of the first step.
  std::vector<std::vector<std::vector<std::uint32_t>>> held;
  std::uint64_t horizon_epochs = 16;  // how far ahead uses are looked at, at least 1
  std::uint64_t seed = 0;             // of what is drawn
  // A stream of all uses from the start of the run on; asked for as often as needed, when the
  // placement is made.
  std::function<Result<std::unique_ptr<UseStream>>()> uses;
};

// Makes one sort of placement; a new one is one new file and one row in placement_factory.cc.
// Stateless.
class PlacementFactory {
 public:
  virtual ~PlacementFactory() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Whether it looks at uses to come. Those that do not, only at those that were.
  [[nodiscard]] virtual bool clairvoyant() const = 0;
  // Whether tiers are of use to it.
  [[nodiscard]] virtual bool keeps_blocks() const { return true; }

  // Errors: InvalidArgument  a node that is none, tiers beyond kTiersMax, 2^32 - 1 blocks or more,
  //                          held blocks that do not fit or are twice in a node, a horizon of 0,
  //                          `reuse` with 2^16 nodes or more; those of request.uses
  [[nodiscard]] virtual Result<std::unique_ptr<Placement>> Make(PlacementRequest request) const = 0;
};

const Registry<PlacementFactory>& Placements();

}  // namespace headrace
