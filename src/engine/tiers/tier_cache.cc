#include "engine/tiers/tier_cache.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace headrace {
namespace {

// Moves that wait hold entries in the tier that they leave. Those beyond are let go: what was to be
// moved comes from storage when it is used next.
constexpr std::size_t kMovesMax = 256;

}  // namespace

TierCache::TierCache(std::vector<Tier*> tiers, std::shared_ptr<const BlockMap> blocks,
                     std::unique_ptr<Placement> placement,
                     std::span<const std::vector<std::uint32_t>> held, NodeNumber node,
                     std::uint32_t nodes)
    : tiers_(std::move(tiers)),
      blocks_(std::move(blocks)),
      of_one_(blocks_->block_count() == blocks_->sample_count()),
      placement_(std::move(placement)),
      node_(node),
      nodes_(nodes),
      storage_readers_(nodes),
      wanted_(blocks_->block_count(), kNoTier),
      ahead_unused_(of_one_ ? blocks_->sample_count() : 0),
      planned_uses_(tiers_.size() + 1) {
  HEADRACE_CHECK(tiers_.size() <= kTiersMax && held.size() <= tiers_.size());
  for (std::size_t tier = 0; tier < held.size(); ++tier) {
    for (const std::uint32_t block : held[tier]) {
      wanted_.at(block) = static_cast<TierNumber>(tier);
    }
  }
}

void TierCache::PlanStep() {
  planned_ = placement_->Next();
  at_nodes_.clear();
  ahead_from_.clear();
  storage_readers_ = placement_->StorageReaders().value_or(nodes_);
  if (!planned_.has_value() || node_ == kNoNode) return;
  for (const PlannedUse& use : planned_->uses) {
    // Of a tier of this node, too: what it is to have may not be there yet.
    const bool here = use.tier != kNoTier;
    std::optional<BlockHolder> peer;
    if (use.at_peer) peer = BlockHolder{.node = use.peer, .tier = use.peer_tier};
    const std::optional<BlockHolder> from = peer && !here ? peer : OtherHolder(use.block);
    PlannedHolders holders{.storage_readers = storage_readers_};
    if (here) holders.copy = peer;
    if (from.has_value()) {
      holders.nodes = Holders{from->node, SecondHolder(use.block, from->node)};
      holders.tier = from->tier;
    } else if (!holders.copy.has_value()) {
      continue;
    }
    at_nodes_.emplace_back(use.block, holders);
  }
  std::ranges::sort(at_nodes_, {}, &std::pair<std::uint32_t, PlannedHolders>::first);
  for (const CacheOp& op : planned_->ops) {
    ahead_from_.push_back(op.ahead ? OtherHolder(op.block) : std::nullopt);
  }
}

// The node that reads a block from storage for all; nothing: this one, or none is to have it.
std::optional<BlockHolder> TierCache::OtherHolder(std::uint32_t block) const {
  std::optional<BlockHolder> holder = placement_->Reader(block, nodes_);
  if (holder.has_value() && holder->node == node_) holder.reset();
  return holder;
}

// The next holder after `first`, cyclically: nodes that lack a copy ask different ones. Nothing:
// there is no other than this node and `first`.
std::optional<NodeNumber> TierCache::SecondHolder(std::uint32_t block, NodeNumber first) const {
  for (const bool after : {true, false}) {
    for (NodeNumber from = after ? first + 1 : 0;; ++from) {
      const std::optional<BlockHolder> holder = placement_->Holder(block, from);
      if (!holder.has_value() || (!after && holder->node >= first)) break;
      from = holder->node;
      if (from != node_) return from;
    }
  }
  return std::nullopt;
}

PlannedHolders TierCache::HoldersOf(SampleId sample) const {
  const PlannedHolders nobody{.storage_readers = storage_readers_};
  if (at_nodes_.empty()) return nobody;
  const auto block = static_cast<std::uint32_t>(BlockOf(sample));
  const auto found = std::ranges::lower_bound(at_nodes_, block, {},
                                              &std::pair<std::uint32_t, PlannedHolders>::first);
  return found != at_nodes_.end() && found->first == block ? found->second : nobody;
}

void TierCache::Advance(const Step& step) {
  std::optional<PlacedStep> placed = std::exchange(planned_, std::nullopt);
  const Position at{.epoch = step.epoch, .step = step.step};
  HEADRACE_CHECK(placed.has_value() && placed->at == at);
  for (const PlannedUse& use : placed->uses) {
    ++planned_uses_[use.tier == kNoTier ? tiers_.size() : use.tier];
  }
  Apply(placed->ops);
}

// A block may go through several tiers within a step, or through none, and come back: its bytes go
// once, from where they were before the step to where the step leaves it.
void TierCache::Apply(std::span<CacheOp> ops) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const CacheOp& op = ops[i];
    HEADRACE_CHECK(op.block < wanted_.size() && wanted_[op.block] == op.from);
    wanted_[op.block] = op.to;
    if (progress_ != nullptr) ReportOp(op);
    if (op.from == kNoTier && op.to != kNoTier) counts_.to_keep += blocks_->block(op.block).count;
    if (op.from != kNoTier || !op.ahead || !of_one_) continue;
    ahead_.push_back(
        {.block = op.block, .node = i < ahead_from_.size() ? ahead_from_[i] : std::nullopt});
  }
  std::ranges::stable_sort(ops, {}, &CacheOp::block);
  for (auto op = ops.begin(); op != ops.end();) {
    const std::uint32_t block = op->block;
    const TierNumber from = op->from;
    op = std::find_if(op, ops.end(), [block](const CacheOp& each) { return each.block != block; });
    const TierNumber to = wanted_[block];
    if (from == kNoTier || from == to) continue;
    const BlockMap::Block samples = blocks_->block(block);
    for (std::uint32_t i = 0; i < samples.count; ++i) {
      Leave(SampleId{Raw(samples.first) + i}, *tiers_.at(from), to != kNoTier);
    }
  }
}

void TierCache::ReportOp(const CacheOp& op) const {
  if (op.from != kNoTier && op.to != kNoTier) return;
  const BlockMap::Block samples = blocks_->block(op.block);
  for (std::uint32_t i = 0; i < samples.count; ++i) {
    const SampleId sample{Raw(samples.first) + i};
    op.from == kNoTier ? progress_->Await(sample) : progress_->End(sample);
  }
}

// What is on its way to `from` is not erased, for rows may wait for it: see OnArrived(). What waits
// to be moved goes where NextMove()'s caller finds it wanted.
void TierCache::Leave(SampleId sample, Tier& from, bool moves) {
  Tier::EntryRef entry = from.Find(sample);
  if (!entry) return;
  from.Erase(sample);
  if (!moves) return;
  if (moves_.size() == kMovesMax) {
    ++counts_.moves_dropped;
    return;
  }
  moves_.push_back({.sample = sample, .entry = std::move(entry)});
}

void TierCache::OnArrived(SampleId sample, Tier& tier) {
  if (progress_ != nullptr) progress_->End(sample);
  const Tier* const wanted = Wanted(sample);
  if (wanted != &tier) Leave(sample, tier, wanted != nullptr);
}

Tier::EntryRef TierCache::Find(SampleId sample) {
  const TierNumber wanted = wanted_[BlockOf(sample)];
  if (wanted == kNoTier) return {};
  return tiers_[wanted]->Find(sample);
}

Tier* TierCache::Wanted(SampleId sample) const {
  const TierNumber wanted = wanted_[BlockOf(sample)];
  return wanted == kNoTier ? nullptr : tiers_[wanted];
}

TierNumber TierCache::NumberOf(const Tier* tier) const {
  const auto found = std::find(tiers_.begin(), tiers_.end(), tier);
  HEADRACE_CHECK(found != tiers_.end());
  return static_cast<TierNumber>(found - tiers_.begin());
}

std::optional<TierCache::Ahead> TierCache::NextAhead() {
  for (; !ahead_.empty(); ahead_.pop_front()) {
    const auto [block, node] = ahead_.front();
    const SampleId sample{block};
    Tier* const tier = Wanted(sample);
    if (tier == nullptr || tier->Find(sample)) continue;
    ahead_.pop_front();
    return Ahead{.sample = sample, .tier = tier, .node = node};
  }
  return std::nullopt;
}

void TierCache::PutBackAhead(const Ahead& ahead) {
  ahead_.push_front({.block = static_cast<std::uint32_t>(Raw(ahead.sample)), .node = ahead.node});
}

std::optional<TierMove> TierCache::NextMove() {
  if (moves_.empty()) return std::nullopt;
  TierMove move = std::move(moves_.front());
  moves_.pop_front();
  return move;
}

bool TierCache::TakeAheadMark(SampleId sample) {
  if (!of_one_ || !ahead_unused_[Raw(sample)]) return false;
  ahead_unused_[Raw(sample)] = false;
  return true;
}

std::vector<std::vector<std::uint32_t>> TakeHeldBlocks(
    std::span<Tier* const> tiers, const BlockMap& blocks,
    std::span<const std::uint64_t> capacity_units) {
  std::vector<std::vector<std::uint32_t>> held(tiers.size());
  std::vector<bool> seen(blocks.block_count());  // held, in this tier or a faster one
  std::vector<bool> refused;                     // of this tier: it has no room for them
  std::vector<std::uint32_t> units;
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    std::vector<SampleId> samples = tiers[tier]->Held();
    std::sort(samples.begin(), samples.end());
    std::uint64_t used = 0;
    refused.assign(blocks.block_count(), false);
    for (const SampleId sample : samples) {
      if (Raw(sample) >= blocks.sample_count()) {
        tiers[tier]->Erase(sample);
        continue;
      }
      const auto block = static_cast<std::uint32_t>(blocks.Find(sample));
      if (!held[tier].empty() && held[tier].back() == block) continue;
      if (seen[block] || refused[block]) {
        tiers[tier]->Erase(sample);
        continue;
      }
      const BlockMap::Block of = blocks.block(block);
      units.resize(of.count);
      blocks.Charges(of.first, units);
      const std::uint64_t charge = std::accumulate(units.begin(), units.end(), std::uint64_t{0});
      if (used + charge > capacity_units[tier]) {
        refused[block] = true;
        tiers[tier]->Erase(sample);
        continue;
      }
      used += charge;
      seen[block] = true;
      held[tier].push_back(block);
    }
  }
  return held;
}

}  // namespace headrace
