#include "plan/placement/nodes_planner.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/hash.h"

namespace headrace::placement {
namespace {

// Lists for the tiers of all nodes, if a table of bytes would take more.
std::shared_ptr<HolderLists> ListsFor(const PlacementRequest& request) {
  const std::uint64_t nodes = request.capacity_units.size();
  bool lists = request.tables == NodeTables::kLists;
  if (request.tables == NodeTables::kSmaller && nodes > 64) {
    double units = 0;
    for (const std::vector<std::uint64_t>& tiers : request.capacity_units) {
      for (const std::uint64_t capacity : tiers) units += static_cast<double>(capacity);
    }
    const double copies = units / static_cast<double>(request.blocks->total_units());
    lists = 8 + 8 * copies < static_cast<double>(nodes);  // Bytes a block.
  }
  if (!lists) return nullptr;
  HEADRACE_CHECK(nodes <= HolderLists::kNodesMax);
  return std::make_shared<HolderLists>(static_cast<std::uint32_t>(request.blocks->block_count()));
}

// Takes a node that has the block for the source of a use, if its tier is faster than the one that
// is known.
void Offer(const BlockHolder& holder, PlannedUse& use) {
  if (holder.tier >= use.peer_tier) return;
  use.peer = holder.node;
  use.peer_tier = holder.tier;
  use.at_peer = true;
}

// The plans of all nodes, from one planner of all of them.
class AllNodesReport final : public AllNodes {
 public:
  explicit AllNodesReport(std::unique_ptr<NodesPlanner> planner) : planner_(std::move(planner)) {
    planner_->RecordAll();
    if (planner_->lists() == nullptr) {
      ahead_.resize(std::size_t{planner_->block_count()} * nodes());
    }
  }

  bool Next(NodesStep& step) override {
    const StepUses* const uses = planner_->Enter();
    if (uses == nullptr) return false;
    HEADRACE_CHECK(uses->node_ends.size() == nodes());
    step.at = uses->at;
    step.ends_epoch = uses->ends_epoch;
    ReportUses(*uses, step);
    planner_->Advance();
    ReportOps(*uses, step);
    return true;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::map<std::string, double> all = tally_.counters();
    all["coverage_units"] = planner_->CoverageUnits();
    return all;
  }

 private:
  [[nodiscard]] std::uint32_t nodes() const {
    return static_cast<std::uint32_t>(planner_->tiers().size());
  }

  void ReportUses(const StepUses& uses, NodesStep& step) {
    step.uses.clear();
    step.use_ends.clear();
    std::size_t i = 0;
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      for (; i < uses.node_ends[node]; ++i) {
        Expect([&](std::size_t k) { return uses.blocks[k]; }, i, uses.blocks.size());
        const std::uint32_t block = uses.blocks[i];
        HEADRACE_CHECK(block < planner_->block_count());
        const PlannedUse use = planner_->LocateFor(node, block);
        // Each use of a copy that was loaded ahead but the first one is a use of it again.
        const bool again = use.tier != kNoTier && !SetAhead(node, block, false);
        tally_.Use(use, planner_->sizes().Of(block), again);
        step.uses.push_back(use);
      }
      step.use_ends.push_back(i);
    }
  }

  void ReportOps(const StepUses& uses, NodesStep& step) {
    std::size_t count = 0;
    for (const NodeTiers& tiers : planner_->tiers()) count += tiers.ops().size();
    step.ops.clear();
    step.ops.reserve(count);
    step.op_ends.clear();
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      NodeTiers& tiers = planner_->tiers()[node];
      if (!tiers.ops().empty()) {
        const std::span<const std::uint32_t> own = uses.OfNode(node);
        own_.assign(own.begin(), own.end());
        std::ranges::sort(own_);
        const std::vector<CacheOp> ops = tiers.TakeOps();
        for (std::size_t i = 0; i < ops.size(); ++i) {
          Expect([&](std::size_t k) { return ops[k].block; }, i, ops.size());
          CacheOp op = ops[i];
          op.ahead = op.from == kNoTier && !std::ranges::binary_search(own_, op.block);
          if (op.from == kNoTier) SetAhead(node, op.block, op.ahead);
          tally_.Op(op, planner_->sizes().Of(op.block));
          step.ops.push_back(op);
        }
      }
      step.op_ends.push_back(step.ops.size());
    }
  }

  // Marks a node's copy of a block as one that was loaded ahead and not used since; returns whether
  // it was marked.
  bool SetAhead(std::uint32_t node, std::uint32_t block, bool ahead) {
    if (HolderLists* const lists = planner_->lists(); lists != nullptr) {
      return lists->SetMark(block, node, ahead);
    }
    std::vector<bool>::reference mark = ahead_[std::size_t{block} * nodes() + node];
    const bool was = mark;
    if (was != ahead) mark = ahead;
    return was;
  }

  // Prefetches for the blocks that follow block_of(i), up to block_of(end - 1).
  template <typename BlockOf>
  [[gnu::always_inline]] void Expect(const BlockOf& block_of, std::size_t i, std::size_t end) {
    constexpr std::size_t kNext = 8;
    const HolderLists* const lists = planner_->lists();
    if (lists == nullptr) {
      if (i + kNext < end) planner_->tiers()[0].Expect(block_of(i + kNext));
      return;
    }
    if (i + 2 * kNext < end) lists->Expect(block_of(i + 2 * kNext));
    if (i + kNext < end) lists->ExpectEntries(block_of(i + kNext));
  }

  const std::unique_ptr<NodesPlanner> planner_;
  Tally tally_;
  std::vector<bool> ahead_;  // [block][node], where the tiers are in no lists: see SetAhead()
  std::vector<std::uint32_t> own_;  // the uses of one node, sorted
};

}  // namespace

NodesPlanner::NodesPlanner(PlacementRequest given)
    : Planner(std::move(given)),
      lists_(ListsFor(request())),
      nodes_(NodeTiers::MakeAll(shared_sizes(), request().capacity_units, node(),
                                request().numbers_inserts ? request().blocks : nullptr, lists_)),
      count_(nodes_.size()),
      bytes_(lists_ == nullptr ? nodes_.front().bytes() : nullptr) {
  for (std::uint32_t each = 0; each < nodes(); ++each) {
    ForHeld(each, [&](std::uint32_t block, TierNumber tier) { nodes_[each].Hold(block, tier); });
  }
}

std::optional<PlacedStep> NodesPlanner::Next() {
  const StepUses* const uses = Enter();
  if (uses == nullptr) return std::nullopt;
  PlacedStep step = Begin(uses->at, OwnUses(*uses));
  Advance();
  Finish(step, nodes_[node()]);
  return step;
}

void NodesPlanner::RecordAll() {
  for (NodeTiers& tiers : nodes_) tiers.Record();
}

std::optional<BlockHolder> NodesPlanner::Holder(std::uint32_t block, std::uint32_t from) const {
  if (lists_ != nullptr) {
    const std::span<const HolderLists::Entry> list = lists_->Of(block);
    const std::size_t place = HolderLists::Place(list, from);
    if (place == list.size()) return std::nullopt;
    return BlockHolder{.node = list[place].node(), .tier = list[place].tier()};
  }
  const std::span<const TierNumber> row = Row(block);
  for (std::uint32_t each = from; each < row.size(); ++each) {
    if (row[each] != kNoTier) return BlockHolder{.node = each, .tier = row[each]};
  }
  return std::nullopt;
}

std::uint32_t NodesPlanner::OtherHolder(std::uint32_t each, std::uint32_t block) const {
  std::uint32_t other = 0;
  if (lists_ != nullptr) {
    const std::span<const HolderLists::Entry> list = lists_->Of(block);
    while (list[other].node() == each) ++other;
    return list[other].node();
  }
  const std::span<const TierNumber> row = Row(block);
  while (other == each || row[other] == kNoTier) ++other;
  return other;
}

std::uint64_t NodesPlanner::OwnersSum() const {
  std::uint64_t sum = 0;
  for (std::uint64_t each = 0; each < nodes_.size(); ++each) {
    sum += Mix64(nodes_[each].sum() + Mix64(each + 1));
  }
  return sum;
}

PlannedUse NodesPlanner::LocateFor(std::uint32_t node, std::uint32_t block) const {
  if (lists_ != nullptr) return LocateInLists(node, block);
  const std::span<const TierNumber> row = Row(block);
  PlannedUse use{.block = block, .tier = row[node]};
  const bool fastest = request().fastest_peer;
  if (use.tier != kNoTier && !fastest) return use;
  std::uint32_t other = node;
  for (std::size_t i = 1; i < row.size() && (!use.at_peer || fastest); ++i) {
    if (++other == row.size()) other = 0;
    Offer({.node = other, .tier = row[other]}, use);
  }
  return use;
}

PlannedUse NodesPlanner::LocateInLists(std::uint32_t node, std::uint32_t block) const {
  const std::span<const HolderLists::Entry> list = lists_->Of(block);
  std::size_t next = HolderLists::Place(list, node);
  std::size_t others = list.size();
  PlannedUse use{.block = block};
  const bool fastest = request().fastest_peer;
  if (next < list.size() && list[next].node() == node) {
    use.tier = list[next].tier();
    if (!fastest) return use;
    ++next;
    --others;
  }
  for (; others > 0 && (!use.at_peer || fastest); --others, ++next) {
    const HolderLists::Entry other = list[next < list.size() ? next : next - list.size()];
    Offer({.node = other.node(), .tier = other.tier()}, use);
  }
  return use;
}

double NodesPlanner::CoverageUnits() const {
  double units = 0;
  for (std::uint32_t block = 0; block < block_count(); ++block) {
    const bool held =
        lists_ != nullptr
            ? !lists_->Of(block).empty()
            : std::ranges::any_of(Row(block), [](TierNumber tier) { return tier != kNoTier; });
    if (held) units += static_cast<double>(sizes().Of(block));
  }
  return units;
}

std::map<std::string, double> NodesPlanner::counters() const {
  std::map<std::string, double> all = Planner::counters();
  all["coverage_units"] = CoverageUnits();
  return all;
}

std::unique_ptr<AllNodes> ReportAllNodes(std::unique_ptr<NodesPlanner> planner) {
  return std::make_unique<AllNodesReport>(std::move(planner));
}

}  // namespace headrace::placement
