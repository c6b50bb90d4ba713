#include "plan/placement/tiers.h"

#include "base/check.h"
#include "base/hash.h"

namespace headrace::placement {

namespace {

std::uint64_t SumOf(std::uint32_t block, TierNumber tier) {
  return Mix64((std::uint64_t{block} + 1) << 8 | tier);
}

}  // namespace

NodeTiers::NodeTiers(const std::shared_ptr<const BlockSizes>& sizes,
                     std::vector<std::uint64_t> capacity_units, bool recorded)
    : NodeTiers(TierRoom(sizes, std::move(capacity_units)), recorded, 0, 1,
                std::make_shared<std::vector<TierNumber>>(sizes->count(), kNoTier), nullptr) {}

NodeTiers::NodeTiers(TierRoom room, bool recorded, std::uint32_t node, std::size_t stride,
                     std::shared_ptr<std::vector<TierNumber>> table,
                     std::shared_ptr<HolderLists> lists)
    : TierRoom(std::move(room)),
      recorded_(recorded),
      node_(node),
      stride_(stride),
      table_(std::move(table)),
      lists_(std::move(lists)),
      tier_of_(table_ == nullptr ? nullptr : table_->data() + node) {}

std::vector<NodeTiers> NodeTiers::MakeAll(
    const std::shared_ptr<const BlockSizes>& sizes,
    const std::vector<std::vector<std::uint64_t>>& capacity_units, std::uint32_t recorded,
    const std::shared_ptr<const BlockMap>& numbered, const std::shared_ptr<HolderLists>& lists) {
  const auto nodes = static_cast<std::uint32_t>(capacity_units.size());
  std::shared_ptr<std::vector<TierNumber>> table;
  if (lists == nullptr) {
    table = std::make_shared<std::vector<TierNumber>>(std::size_t{sizes->count()} * nodes, kNoTier);
  }
  std::vector<NodeTiers> all;
  all.reserve(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    all.push_back(NodeTiers(TierRoom(sizes, capacity_units[node]), node == recorded, node, nodes,
                            table, lists));
    if (numbered == nullptr) continue;
    all.back().numbered_ = numbered;
    all.back().insert_numbers_.resize(sizes->count());
  }
  return all;
}

void NodeTiers::Move(std::uint32_t block, TierNumber from, TierNumber to) {
  if (from == to) return;
  if (recorded_) ops_.push_back({.block = block, .from = from, .to = to});
  if (numbered_ != nullptr && from == kNoTier) {
    samples_inserted_ += numbered_->block(block).count;
    insert_numbers_[block] = samples_inserted_;
  }
  Place(block, from, to);
}

void NodeTiers::Place(std::uint32_t block, TierNumber from, TierNumber to) {
  const std::uint64_t units = sizes().Of(block);
  if (from != kNoTier) {
    Return(from, units);
    sum_ -= SumOf(block, from);
  }
  if (to != kNoTier) {
    Take(to, units);
    sum_ += SumOf(block, to);
  }
  if (tier_of_ == nullptr) [[unlikely]] {
    lists_->Set(block, node_, to);
  } else {
    tier_of_[block * stride_] = to;
  }
}

TierNumber NodeTiers::OfLists(std::uint32_t block) const { return lists_->Of(block, node_); }

Planner::Planner(PlacementRequest request)
    : request_(std::move(request)),
      sizes_(std::make_shared<BlockSizes>(*request_.blocks)),
      marks_(sizes_->count() / kMarked + 1) {
  ForHeld(node(), [&](std::uint32_t block, TierNumber /*tier*/) {
    marks_[block / kMarked] |= kInUse << Shift(block);
  });
}

PlacedStep Planner::Begin(Position at, std::span<const std::uint32_t> blocks) {
  PlacedStep step;
  step.at = at;
  step.uses.reserve(blocks.size());
  for (const std::uint32_t block : blocks) {
    HEADRACE_CHECK(block < block_count());
    const PlannedUse use = Locate(block);
    std::uint64_t& marks = marks_[block / kMarked];
    tally_.Use(use, sizes_->Of(block), (marks >> Shift(block) & kInUse) != 0);
    marks |= (kInUse | kUsed) << Shift(block);
    step.uses.push_back(use);
  }
  step_used_.assign(blocks.begin(), blocks.end());
  return step;
}

void Planner::Finish(PlacedStep& step, NodeTiers& own) {
  step.ops = own.TakeOps();
  for (CacheOp& op : step.ops) {
    std::uint64_t& marks = marks_[op.block / kMarked];
    op.ahead = op.from == kNoTier && (marks >> Shift(op.block) & kUsed) == 0;
    if (op.ahead) marks &= ~(kInUse << Shift(op.block));
    tally_.Op(op, sizes_->Of(op.block));
  }
  for (const std::uint32_t block : step_used_) marks_[block / kMarked] &= ~(kUsed << Shift(block));
}

std::span<const std::uint32_t> Planner::OwnUses(const StepUses& step) const {
  HEADRACE_CHECK(step.node_ends.size() == nodes());
  return step.OfNode(node());
}

NodeTiers Planner::MakeTiers() const {
  NodeTiers tiers(sizes_, request_.capacity_units[node()], /*recorded=*/true);
  ForHeld(node(), [&](std::uint32_t block, TierNumber tier) { tiers.Hold(block, tier); });
  return tiers;
}

std::map<std::string, double> Tally::counters() const {
  std::map<std::string, double> all;
  const auto add = [&](const char* name, const Kind& kind) {
    all[name] = kind.uses;
    all[std::string(name) + "_units"] = kind.units;
  };
  add("local", local_);
  add("peer", peer_);
  add("storage", storage_);
  add("reuse", reuse_);
  add("inserted", inserted_);
  add("ahead", ahead_);
  add("moved", moved_);
  add("evicted", evicted_);
  add("uses", {.uses = local_.uses + peer_.uses + storage_.uses,
               .units = local_.units + peer_.units + storage_.units});
  return all;
}

}  // namespace headrace::placement
