#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/tiers/fill_progress.h"
#include "fetch/fetch.h"
#include "headrace/ids.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "tier/tier.h"

namespace headrace {

// What the plan says of a sample's sources beside the tiers of this node.
struct PlannedHolders {
  std::optional<Holders> nodes;  // to ask for it if no tier of this node has it
  TierNumber tier = kNoTier;     // of the first, in its node's list
  // One to ask though a tier of this node has it. Not if it is only to have it: both would ask each
  // other for what neither has, while `nodes` begins with the one that reads it for all.
  std::optional<BlockHolder> copy;
  // Nodes that read storage in that step; all, if the placement does not count them.
  std::uint32_t storage_readers = 1;

  friend bool operator==(const PlannedHolders&, const PlannedHolders&) = default;
};

// A sample to move out of `entry`.
struct TierMove {
  SampleId sample{};
  Tier::EntryRef entry;
};

// What was planned so far. Samples.
struct PlannedCounts {
  std::uint64_t to_keep = 0;        // for a tier, while none was to have them
  std::uint64_t moves_dropped = 0;  // moves that were given up, because too many waited
};

// The tiers of a node, as a placement plans them: finds samples in them, says which to insert, and
// queues those to be fetched ahead.
//
// The planned and the actual contents may differ for a while: bytes arrive after their insert was
// planned, and a tier that fails loses some. A planned sample that is missing is inserted when it
// is next read from storage.
//
// Thread safety: none; the tiers have theirs.
// Ownership: the tiers are the caller's and outlive it.
class TierCache {
 public:
  // `blocks` are what `placement` plans with; `held` [tier][...] its blocks held at the start.
  // `node`: this one among those that ask each other; kNoNode: it asks nobody. `nodes`: of the job.
  TierCache(std::vector<Tier*> tiers, std::shared_ptr<const BlockMap> blocks,
            std::unique_ptr<Placement> placement, std::span<const std::vector<std::uint32_t>> held,
            NodeNumber node = kNoNode, std::uint32_t nodes = 1);

  // From now on reports every insert to `progress`, which covers all samples.
  void Report(std::shared_ptr<FillProgress> progress) { progress_ = std::move(progress); }

  // Plans the next step for Advance(). May take long, and may run concurrently with every other
  // method except Advance().
  void PlanStep();

  // Applies the ops of the planned step, and counts its uses. Find the samples of the step before,
  // since it may evict them.
  void Advance(const Step& step);

  // The nodes to ask for a sample of the step that was planned: they have it, or will from this
  // step on; the first reads it from storage for all. No `nodes`: this one has it, or none. Before
  // Advance().
  [[nodiscard]] PlannedHolders HoldersOf(SampleId sample) const;

  // The entry of a sample in the tier that the plan assigns; empty: it is not there, or not yet.
  [[nodiscard]] Tier::EntryRef Find(SampleId sample);

  // The tier that the plan assigns to `sample`, failed or not; null: none.
  [[nodiscard]] Tier* Wanted(SampleId sample) const;

  // Position of `tier` in its node's list.
  [[nodiscard]] TierNumber NumberOf(const Tier* tier) const;
  [[nodiscard]] std::span<Tier* const> tiers() const { return tiers_; }

  // The next sample to fetch ahead, with its tier, and the node to ask for it; std::nullopt: none
  // is left. Skips those that were fetched or are no longer wanted.
  struct Ahead {
    SampleId sample{};
    Tier* tier = nullptr;
    std::optional<BlockHolder> node;  // nothing: storage
  };
  [[nodiscard]] std::optional<Ahead> NextAhead();
  // Puts it back, to be next again.
  void PutBackAhead(const Ahead& ahead);

  // A sample was inserted into `tier`: erases it if the plan has evicted it meanwhile.
  void OnArrived(SampleId sample, Tier& tier);

  // The next sample to move, into the tier that the plan assigns now: Wanted().
  [[nodiscard]] std::optional<TierMove> NextMove();

  [[nodiscard]] const PlannedCounts& counts() const { return counts_; }

  // Marks a sample as fetched ahead of its first use; true, once, when asked whether it was.
  void MarkAhead(SampleId sample) {
    if (of_one_) ahead_unused_[Raw(sample)] = true;
  }
  [[nodiscard]] bool TakeAheadMark(SampleId sample);

  // The planned uses so far, by tier and, last, elsewhere.
  [[nodiscard]] std::span<const std::uint64_t> planned_uses() const { return planned_uses_; }

 private:
  void Apply(std::span<CacheOp> ops);
  void ReportOp(const CacheOp& op) const;
  struct AheadBlock {
    std::uint32_t block = 0;
    std::optional<BlockHolder> node;  // nothing: storage
  };

  [[nodiscard]] std::optional<BlockHolder> OtherHolder(std::uint32_t block) const;
  [[nodiscard]] std::optional<NodeNumber> SecondHolder(std::uint32_t block, NodeNumber first) const;
  void Leave(SampleId sample, Tier& from, bool moves);
  [[nodiscard]] std::uint64_t BlockOf(SampleId sample) const {
    return of_one_ ? Raw(sample) : blocks_->Find(sample);
  }

  const std::vector<Tier*> tiers_;
  const std::shared_ptr<const BlockMap> blocks_;
  const bool of_one_;  // blocks are samples
  const std::unique_ptr<Placement> placement_;
  const NodeNumber node_;
  const std::uint32_t nodes_;
  std::shared_ptr<FillProgress> progress_;  // null: nobody asks
  std::optional<PlacedStep> planned_;       // by PlanStep()
  std::uint32_t storage_readers_;           // of it
  std::vector<std::pair<std::uint32_t, PlannedHolders>>
      at_nodes_;                                        // its blocks elsewhere, ascending
  std::vector<std::optional<BlockHolder>> ahead_from_;  // of its ops, in order
  std::vector<TierNumber> wanted_;                      // by block
  std::vector<bool> ahead_unused_;                      // by sample, where blocks are samples
  // Blocks to fetch ahead, where these are samples, and the nodes to ask for them.
  std::deque<AheadBlock> ahead_;
  std::deque<TierMove> moves_;
  PlannedCounts counts_;
  std::vector<std::uint64_t> planned_uses_;
};

// The blocks that tiers hold, [tier], ascending, for a placement to start from: a block of which a
// sample is there counts. Samples of blocks that are in a faster tier too, or that as whole blocks
// are more than `capacity_units` of the tier, are erased.
std::vector<std::vector<std::uint32_t>> TakeHeldBlocks(
    std::span<Tier* const> tiers, const BlockMap& blocks,
    std::span<const std::uint64_t> capacity_units);

}  // namespace headrace
