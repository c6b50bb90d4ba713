#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "fetch/fetch.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "tier/tier.h"

namespace headrace {

// The tiers of a node, as a placement wants them: finds samples in them, says which to insert, and
// lines up those to be fetched ahead.
//
// What is wanted and what is there may differ for a while: bytes come after their insert was
// planned, and a tier that fails loses some. What is wanted and not there is inserted when it is
// read from storage the next time.
//
// Thread safety: none; the tiers have theirs.
// Ownership: the tiers are the caller's and outlive it.
class TierCache {
 public:
  // `blocks` are what `placement` plans with; `held` [tier][...] its blocks held at the start.
  // `node`: this one among those that ask each other; kNoNode: it asks nobody.
  TierCache(std::vector<Tier*> tiers, std::shared_ptr<const BlockMap> blocks,
            std::unique_ptr<Placement> placement, std::span<const std::vector<std::uint32_t>> held,
            NodeNumber node = kNoNode);

  // Plans the next step for Advance(). May take long, and may run beside every other method but
  // Advance().
  void PlanStep();

  // Goes on by the step that was planned: applies what the placement says of it, and counts its
  // uses. Samples of the step have to be found before, for it may evict them.
  void Advance(const Step& step);

  // The nodes to ask for a sample of the step that was planned: they have it, or will from this
  // step on; the first reads it from storage for all. No first: this one has it, or none. Before
  // Advance().
  [[nodiscard]] Holders HoldersOf(SampleId sample) const;

  // The entry of a sample in the tier that is to have it; empty: it is not there, or not yet.
  [[nodiscard]] Tier::EntryRef Find(SampleId sample);

  // The tier that is to have `sample`, failed or not; null: none.
  [[nodiscard]] Tier* Wanted(SampleId sample) const;

  // Position of `tier` in its node's list.
  [[nodiscard]] TierNumber NumberOf(const Tier* tier) const;
  [[nodiscard]] std::span<Tier* const> tiers() const { return tiers_; }

  // The next sample to fetch ahead, with the tier that is to have it, and the node to ask for it;
  // nothing: none is left. Skips those that are there or wanted no more.
  struct Ahead {
    SampleId sample{};
    Tier* tier = nullptr;
    NodeNumber node = kNoNode;  // kNoNode: storage
  };
  [[nodiscard]] std::optional<Ahead> NextAhead();
  // Puts it back, to be next again.
  void PutBackAhead(const Ahead& ahead);

  // A sample has come into `tier`: it leaves again if the plan has gone on meanwhile.
  void OnArrived(SampleId sample, Tier& tier);

  // The next sample to move out of `entry`, into the tier that is to have it by now: Wanted().
  struct Move {
    SampleId sample{};
    Tier::EntryRef entry;
  };
  [[nodiscard]] std::optional<Move> NextMove();

  // Moves that were planned and given up, because too many waited.
  [[nodiscard]] std::uint64_t moves_dropped() const { return moves_dropped_; }

  // Marks a sample as fetched ahead of its first use; true, once, when asked whether it was.
  void MarkAhead(SampleId sample) {
    if (of_one_) ahead_unused_[Raw(sample)] = true;
  }
  [[nodiscard]] bool TakeAheadMark(SampleId sample);

  // What the plan said of the uses so far, by tier and, last, of those elsewhere.
  [[nodiscard]] std::span<const std::uint64_t> planned_uses() const { return planned_uses_; }

 private:
  void Apply(std::span<CacheOp> ops);
  [[nodiscard]] NodeNumber OtherHolder(std::uint32_t block) const;
  [[nodiscard]] NodeNumber SecondHolder(std::uint32_t block, NodeNumber first) const;
  void Leave(SampleId sample, Tier& from, bool moves);
  [[nodiscard]] std::uint64_t BlockOf(SampleId sample) const {
    return of_one_ ? Raw(sample) : blocks_->Find(sample);
  }

  const std::vector<Tier*> tiers_;
  const std::shared_ptr<const BlockMap> blocks_;
  const bool of_one_;  // blocks are samples
  const std::unique_ptr<Placement> placement_;
  const NodeNumber node_;
  std::optional<PlacedStep> planned_;                        // by PlanStep()
  std::vector<std::pair<std::uint32_t, Holders>> at_nodes_;  // its blocks elsewhere, ascending
  std::vector<NodeNumber> ahead_nodes_;                      // of its ops, in order
  std::vector<TierNumber> wanted_;                           // by block
  std::vector<bool> ahead_unused_;                           // by sample, where blocks are samples
  // Blocks to fetch ahead, where these are samples, and the nodes to ask for them.
  std::deque<std::pair<std::uint32_t, NodeNumber>> ahead_;
  std::deque<Move> moves_;
  std::uint64_t moves_dropped_ = 0;
  std::vector<std::uint64_t> planned_uses_;
};

// The blocks that tiers hold, [tier], ascending, for a placement to start from: a block of which a
// sample is there counts. Samples of blocks that are in a faster tier too, or that as whole blocks
// are more than `capacity_units` of the tier, are erased.
std::vector<std::vector<std::uint32_t>> TakeHeldBlocks(
    std::span<Tier* const> tiers, const BlockMap& blocks,
    std::span<const std::uint64_t> capacity_units);

}  // namespace headrace
