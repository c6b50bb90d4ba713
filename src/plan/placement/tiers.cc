#include "plan/placement/tiers.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"

namespace headrace::placement {

namespace {

std::uint64_t SumOf(std::uint32_t block, TierNumber tier) {
  return Mix64((std::uint64_t{block} + 1) << 8 | tier);
}

}  // namespace

BlockSizes::BlockSizes(const BlockMap& blocks)
    : count_(static_cast<std::uint32_t>(blocks.block_count())) {
  std::array<std::uint32_t, 1024> units;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  table_.reserve(count_);
  std::uint64_t charged = 0;  // samples whose units were looked up
  std::size_t in_run = units.size();
  for (std::uint32_t block = 0; block < count_; ++block) {
    std::uint64_t sum = 0;
    for (std::uint32_t left = blocks.block(block).count; left > 0; --left) {
      if (in_run == units.size()) {
        const std::uint64_t run = std::min(units.size(), blocks.sample_count() - charged);
        blocks.Charges(SampleId{charged}, std::span(units).first(run));
        charged += run;
        in_run = 0;
      }
      sum += units[in_run++];
    }
    table_.push_back(static_cast<std::uint32_t>(std::min(sum, kTooLarge)));
  }
  if (table_.empty()) return;
  const auto [least, most] = std::minmax_element(table_.begin(), table_.end());
  least_ = *least;
  if (*least == *most) {
    each_ = *least;
    table_ = {};
  }
}

NodeTiers::NodeTiers(const std::shared_ptr<const BlockSizes>& sizes,
                     std::vector<std::uint64_t> capacity_units, bool recorded)
    : NodeTiers(sizes, std::move(capacity_units), recorded,
                std::make_shared<std::vector<TierNumber>>(sizes->count(), kNoTier), 1, 0) {}

NodeTiers::NodeTiers(std::shared_ptr<const BlockSizes> sizes,
                     std::vector<std::uint64_t> capacity_units, bool recorded,
                     std::shared_ptr<std::vector<TierNumber>> table, std::size_t stride,
                     std::size_t place)
    : sizes_(std::move(sizes)),
      capacity_(std::move(capacity_units)),
      recorded_(recorded),
      free_(capacity_),
      table_(std::move(table)),
      stride_(stride),
      tier_of_(table_->data() + place) {}

std::vector<NodeTiers> NodeTiers::MakeAll(
    const std::shared_ptr<const BlockSizes>& sizes,
    const std::vector<std::vector<std::uint64_t>>& capacity_units, std::uint32_t recorded,
    const std::shared_ptr<const BlockMap>& numbered) {
  const std::size_t nodes = capacity_units.size();
  const auto table = std::make_shared<std::vector<TierNumber>>(sizes->count() * nodes, kNoTier);
  std::vector<NodeTiers> all;
  all.reserve(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    all.push_back(NodeTiers(sizes, capacity_units[node], node == recorded, table, nodes, node));
    if (numbered == nullptr) continue;
    all.back().numbered_ = numbered;
    all.back().insert_numbers_.resize(sizes->count());
  }
  return all;
}

TierNumber NodeTiers::WithRoom(std::uint32_t block) const {
  for (TierNumber tier = 0; tier < count(); ++tier) {
    if (HasRoom(tier, block)) return tier;
  }
  return kNoTier;
}

bool NodeTiers::Full() const {
  return std::ranges::all_of(free_, [&](std::uint64_t free) { return free < sizes_->least(); });
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
  const std::uint64_t units = sizes_->Of(block);
  if (from != kNoTier) {
    free_[from] += units;
    sum_ -= SumOf(block, from);
  }
  if (to != kNoTier) {
    HEADRACE_CHECK(units <= free_[to]);
    free_[to] -= units;
    sum_ += SumOf(block, to);
  }
  tier_of_[block * stride_] = to;
}

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
    const auto units = static_cast<double>(sizes_->Of(block));
    const bool local = use.tier != kNoTier;
    Kind& kind = local ? local_ : use.at_peer ? peer_ : storage_;
    kind.uses += 1;
    kind.units += units;
    std::uint64_t& marks = marks_[block / kMarked];
    if (local && (marks >> Shift(block) & kInUse) != 0) {
      reuse_.uses += 1;
      reuse_.units += units;
    }
    marks |= (kInUse | kUsed) << Shift(block);
    step.uses.push_back(use);
  }
  step_used_.assign(blocks.begin(), blocks.end());
  return step;
}

void Planner::Finish(PlacedStep& step, NodeTiers& own) {
  step.ops = own.TakeOps();
  for (CacheOp& op : step.ops) {
    const bool insert = op.from == kNoTier;
    std::uint64_t& marks = marks_[op.block / kMarked];
    op.ahead = insert && (marks >> Shift(op.block) & kUsed) == 0;
    Kind& kind = insert ? inserted_ : op.to == kNoTier ? evicted_ : moved_;
    const auto units = static_cast<double>(sizes_->Of(op.block));
    kind.uses += 1;
    kind.units += units;
    if (op.ahead) {
      marks &= ~(kInUse << Shift(op.block));
      ahead_.uses += 1;
      ahead_.units += units;
    }
  }
  for (const std::uint32_t block : step_used_) marks_[block / kMarked] &= ~(kUsed << Shift(block));
}

std::span<const std::uint32_t> Planner::OwnUses(const StepUses& step) const {
  HEADRACE_CHECK(step.node_ends.size() == nodes());
  return step.OfNode(node());
}

NodeTiers Planner::MakeEmptyTiers(std::uint32_t node) const {
  return {sizes_, request_.capacity_units[node], node == request_.node};
}

NodeTiers Planner::MakeTiers(std::uint32_t node) const {
  NodeTiers tiers = MakeEmptyTiers(node);
  ForHeld(node, [&](std::uint32_t block, TierNumber tier) { tiers.Hold(block, tier); });
  return tiers;
}

std::vector<NodeTiers> Planner::MakeAllTiers() const {
  std::vector<NodeTiers> all =
      NodeTiers::MakeAll(sizes_, request_.capacity_units, node(),
                         request_.numbers_inserts ? request_.blocks : nullptr);
  for (std::uint32_t each = 0; each < nodes(); ++each) {
    ForHeld(each, [&](std::uint32_t block, TierNumber tier) { all[each].Hold(block, tier); });
  }
  return all;
}

std::map<std::string, double> Planner::counters() const {
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

std::optional<BlockHolder> NodesPlanner::Holder(std::uint32_t block, std::uint32_t from) const {
  for (std::uint32_t each = from; each < nodes_.size(); ++each) {
    const TierNumber tier = nodes_[each].Of(block);
    if (tier != kNoTier) return BlockHolder{.node = each, .tier = tier};
  }
  return std::nullopt;
}

std::uint64_t NodesPlanner::OwnersSum() const {
  std::uint64_t sum = 0;
  for (std::uint64_t each = 0; each < nodes_.size(); ++each) {
    sum += Mix64(nodes_[each].sum() + Mix64(each + 1));
  }
  return sum;
}

PlannedUse NodesPlanner::Locate(std::uint32_t block) const {
  PlannedUse use{.block = block, .tier = nodes_[node()].Of(block)};
  const bool fastest = request().fastest_peer;
  if (use.tier != kNoTier && !fastest) return use;
  for (std::size_t i = 1; i < nodes_.size() && (!use.at_peer || fastest); ++i) {
    const std::size_t other = (node() + i) % nodes_.size();
    const TierNumber tier = nodes_[other].Of(block);
    if (tier >= use.peer_tier) continue;
    use.peer = static_cast<std::uint32_t>(other);
    use.peer_tier = tier;
    use.at_peer = true;
  }
  return use;
}

std::map<std::string, double> NodesPlanner::counters() const {
  std::map<std::string, double> all = Planner::counters();
  double& units = all["coverage_units"];  // of the blocks that are in a tier of any node
  for (std::uint32_t block = 0; block < block_count(); ++block) {
    const bool held = std::ranges::any_of(nodes_, [&](const NodeTiers& n) { return n.Has(block); });
    if (held) units += static_cast<double>(sizes().Of(block));
  }
  return all;
}

}  // namespace headrace::placement
