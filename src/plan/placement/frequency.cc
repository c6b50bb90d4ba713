#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>

#include "base/check.h"
#include "plan/permutation.h"
#include "plan/placement/tiers.h"

namespace headrace::placement {
namespace {

// A plan for the tiers of one node, filled block by block: fastest tier first.
class Wanted {
 public:
  explicit Wanted(NodeTiers empty) : tiers_(std::move(empty)) {}

  // Returns whether there was room.
  bool Add(std::uint32_t block) {
    const TierNumber tier = tiers_.WithRoom(block);
    if (tier == kNoTier) return false;
    tiers_.Hold(block, tier);
    return true;
  }
  [[nodiscard]] bool Full() const { return tiers_.Full(); }
  [[nodiscard]] TierNumber Of(std::uint32_t block) const { return tiers_.Of(block); }
  [[nodiscard]] NodeTiers& tiers() { return tiers_; }

 private:
  NodeTiers tiers_;
};

// `frequency` (NoPFS: Dryden et al., SC'21) and `coordinated`: what is kept for a period of the run
// depends on how often each node uses each block in it. Periods are horizon_epochs long; with one
// node one epoch, since an order uses every block once an epoch and a longer period adds no
// information.
//
// Memory: 2 bytes a block and node for the counts, 2 for the current and planned tiers; while a
// period is planned 8 bytes a block more.
class CountedPlacement : public NodesPlanner {
 public:
  std::optional<PlacedStep> Next() override {
    if (!stream_->Next(uses_)) return std::nullopt;
    PlacedStep step = Begin(uses_.at, OwnUses(uses_));
    if (!period_end_.has_value() || uses_.at.epoch >= *period_end_) {
      const std::uint64_t epochs = nodes() == 1 ? 1 : request().horizon_epochs;
      period_end_ = uses_.at.epoch + std::min(epochs, kForever - uses_.at.epoch);
      Count();
      std::vector<Wanted> wanted = Plan();
      for (std::uint32_t each = 0; each < nodes(); ++each) {
        if (Lists(each)) {
          Change(nodes_[each], wanted[each], first_used_[each]);
        } else {
          nodes_[each] = std::move(wanted[each].tiers());
        }
      }
      for (std::vector<std::uint32_t>& blocks : first_used_) blocks.clear();
    }
    Finish(step, nodes_[node()]);
    return step;
  }

 protected:
  CountedPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream,
                   std::unique_ptr<UseStream> ahead)
      : NodesPlanner(std::move(request)),
        stream_(std::move(stream)),
        ahead_(std::move(ahead)),
        counts_(std::size_t{block_count()} * nodes()),
        first_used_(nodes()) {}

  // The plan of every node's tiers for the counted period.
  virtual std::vector<Wanted> Plan() = 0;

  // Uses of the period; 65,535 stands for more.
  [[nodiscard]] std::uint16_t Uses(std::uint32_t each, std::uint32_t block) const {
    return counts_[std::size_t{block} * nodes() + each];
  }
  [[nodiscard]] bool Has(std::uint32_t each, std::uint32_t block) const {
    return nodes_[each].Has(block);
  }
  [[nodiscard]] Wanted Nothing(std::uint32_t each) const { return Wanted(MakeEmptyTiers(each)); }
  [[nodiscard]] Permutation Draw(std::uint64_t which) const {
    return {block_count(), request().seed, which, RandomStream::kPlacement};
  }

  // Fills the room of a node with the blocks that it uses most; among equals, those that it has
  // first, then in the order drawn. Blocks that it does not use stay while there is room. With
  // `stays` those that it has come before all others.
  void Fill(std::uint32_t each, const Permutation& draw, Wanted& wanted, bool stays) const {
    if (wanted.Full()) return;
    const std::size_t levels = std::size_t{most_uses_} + 1;
    const auto key = [&](std::uint32_t block) {
      const bool has = Has(each, block);
      const std::size_t uses = Uses(each, block);
      return stays ? uses + (has ? levels : 0) : uses * 2 + (has ? 1 : 0);
    };
    std::vector<std::uint32_t> ends(levels * 2);  // by key; a counting sort
    for (std::uint32_t block = 0; block < block_count(); ++block) ++ends[key(block)];
    std::uint32_t sum = 0;
    for (std::size_t k = ends.size() - 1; k > 0; --k) {
      sum += ends[k];
      ends[k] = sum - ends[k];
    }
    std::vector<std::uint32_t> sorted(sum);
    for (std::uint32_t i = 0; i < block_count(); ++i) {
      const auto block = static_cast<std::uint32_t>(draw.At(i));
      const std::size_t k = key(block);
      if (k > 0) sorted[ends[k]++] = block;
    }
    for (const std::uint32_t block : sorted) {
      if (wanted.Of(block) != kNoTier) continue;
      if (!wanted.Add(block) && wanted.Full()) return;
    }
  }

 private:
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

  // Whether a node's inserts are planned one after the other.
  [[nodiscard]] bool Lists(std::uint32_t each) const {
    return each == node() || request().numbers_inserts;
  }

  void Count() {
    std::ranges::fill(counts_, std::uint16_t{0});
    most_uses_ = 0;
    bool more = peeked_ || ahead_->Next(seen_);
    while (more && seen_.at.epoch < *period_end_) {
      for (std::uint32_t each = 0; each < nodes(); ++each) {
        for (const std::uint32_t block : seen_.OfNode(each)) {
          HEADRACE_CHECK(block < block_count());
          std::uint16_t& count = counts_[std::size_t{block} * nodes() + each];
          if (count == 0 && Lists(each)) first_used_[each].push_back(block);
          if (count != std::numeric_limits<std::uint16_t>::max()) ++count;
          most_uses_ = std::max(most_uses_, count);
        }
      }
      more = ahead_->Next(seen_);
    }
    peeked_ = more;
  }

  // Changes the tiers to the plan, never above a capacity: evictions first, then moves, then
  // inserts in the order of first use.
  void Change(NodeTiers& tiers, const Wanted& wanted, std::span<const std::uint32_t> first_used) {
    std::array<std::deque<std::uint32_t>, kTiersMax> moving;  // by the tier that they go to
    for (std::uint32_t block = 0; block < block_count(); ++block) {
      if (!tiers.Has(block) || tiers.Of(block) == wanted.Of(block)) continue;
      if (wanted.Of(block) == kNoTier) {
        tiers.Move(block, kNoTier);
      } else {
        moving[wanted.Of(block)].push_back(block);
      }
    }
    while (true) {
      bool moved = false;
      std::deque<std::uint32_t>* stuck = nullptr;
      for (std::size_t tier = moving.size(); tier > 0; --tier) {
        std::deque<std::uint32_t>& queue = moving[tier - 1];
        while (!queue.empty() && tiers.HasRoom(wanted.Of(queue.front()), queue.front())) {
          tiers.Move(queue.front(), wanted.Of(queue.front()));
          queue.pop_front();
          moved = true;
        }
        if (!queue.empty()) stuck = &queue;
      }
      if (stuck == nullptr) break;
      if (moved) continue;
      // Full tiers exchange blocks: one is evicted and comes back with the inserts.
      tiers.Move(stuck->front(), kNoTier);
      stuck->pop_front();
    }
    const auto insert = [&](std::uint32_t block) {
      if (!tiers.Has(block) && wanted.Of(block) != kNoTier) tiers.Move(block, wanted.Of(block));
    };
    for (const std::uint32_t block : first_used) insert(block);
    for (std::uint32_t block = 0; block < block_count(); ++block) insert(block);
  }

  const std::unique_ptr<UseStream> stream_;
  const std::unique_ptr<UseStream> ahead_;  // the same steps, read to the end of the period
  std::vector<std::uint16_t> counts_;       // [block][node]
  std::uint16_t most_uses_ = 0;             // of counts_
  // By node, of those that Lists(): what it uses in the period, in the order of first use.
  std::vector<std::vector<std::uint32_t>> first_used_;
  std::optional<std::uint64_t> period_end_;  // first epoch after it
  StepUses uses_;
  StepUses seen_;
  bool peeked_ = false;  // whether seen_ is a step of the next period
};

// `frequency`: every node plans its own tiers.
class FrequencyPlacement final : public CountedPlacement {
 public:
  static Result<std::unique_ptr<Placement>> Make(PlacementRequest request) {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> ahead, request.uses());
    return std::unique_ptr<Placement>(std::make_unique<FrequencyPlacement>(
        std::move(request), std::move(stream), std::move(ahead)));
  }

  FrequencyPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream,
                     std::unique_ptr<UseStream> ahead)
      : CountedPlacement(std::move(request), std::move(stream), std::move(ahead)) {}

 private:
  std::vector<Wanted> Plan() override {
    std::vector<Wanted> wanted;
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      wanted.push_back(Nothing(each));
      if (!wanted.back().Full()) Fill(each, Draw(each), wanted.back(), /*stays=*/false);
    }
    return wanted;
  }
};

// `coordinated`: takes (uses, node, block) from the most uses down, first of nodes that have the
// block, then of the others. A block goes to the first node with room, so that every block has one
// owner before any block has two; then each node fills its remaining room as `frequency` does.
// Equal counts: blocks in the order drawn; for the i-th block the nodes from node i on, cyclically.
// So what the nodes have between them stays, and is not read from storage again.
class CoordinatedPlacement final : public CountedPlacement {
 public:
  static Result<std::unique_ptr<Placement>> Make(PlacementRequest request) {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> ahead, request.uses());
    return std::unique_ptr<Placement>(std::make_unique<CoordinatedPlacement>(
        std::move(request), std::move(stream), std::move(ahead)));
  }

  CoordinatedPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream,
                       std::unique_ptr<UseStream> ahead)
      : CountedPlacement(std::move(request), std::move(stream), std::move(ahead)) {}

 private:
  static constexpr std::uint32_t kDone = 0xffff'ffff;

  // A block without an owner, and the highest number of uses by a node that is to be tried yet.
  struct Pending {
    std::uint32_t block;
    std::uint32_t turn;  // the node tried first
    std::uint32_t uses;  // kDone: it has an owner, or every node was tried
  };

  std::vector<Wanted> Plan() override {
    std::vector<Wanted> wanted;
    for (std::uint32_t each = 0; each < nodes(); ++each) wanted.push_back(Nothing(each));
    const Permutation draw = Draw(0);
    std::vector<bool> owned(block_count());
    for (const bool held : {true, false}) Assign(draw, held, owned, wanted);
    for (std::uint32_t each = 0; each < nodes(); ++each)
      Fill(each, draw, wanted[each], /*stays=*/true);
    return wanted;
  }

  // Gives blocks without an owner to nodes that have them; or, not `held`, that do not.
  void Assign(const Permutation& draw, bool held, std::vector<bool>& owned,
              std::vector<Wanted>& wanted) const {
    std::vector<Pending> pending;
    const std::uint32_t blocks = AllFull(wanted) ? 0 : block_count();
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const auto block = static_cast<std::uint32_t>(draw.At(i));
      if (owned[block]) continue;
      const std::uint32_t uses = MostBelow(block, kDone, held);
      if (uses != kDone) pending.push_back({.block = block, .turn = i % nodes(), .uses = uses});
    }
    while (!pending.empty() && !AllFull(wanted)) {
      std::uint32_t level = 0;
      for (const Pending& each : pending) level = std::max(level, each.uses);
      for (Pending& each : pending) {
        if (each.uses != level) continue;
        owned[each.block] = Own(each, held, wanted);
        each.uses = owned[each.block] ? kDone : MostBelow(each.block, level, held);
      }
      std::erase_if(pending, [](const Pending& each) { return each.uses == kDone; });
    }
  }

  static bool AllFull(const std::vector<Wanted>& wanted) {
    return std::ranges::all_of(wanted, &Wanted::Full);
  }

  // The most uses of the block by a node that has it, or not `held`, has not, below `limit`; kDone:
  // there is none.
  [[nodiscard]] std::uint32_t MostBelow(std::uint32_t block, std::uint32_t limit, bool held) const {
    std::uint32_t most = kDone;
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      if (Has(each, block) != held) continue;
      const std::uint32_t uses = Uses(each, block);
      if (uses < limit && (most == kDone || uses > most)) most = uses;
    }
    return most;
  }

  bool Own(const Pending& pending, bool held, std::vector<Wanted>& wanted) const {
    for (std::uint32_t i = 0; i < nodes(); ++i) {
      const std::uint32_t each = (pending.turn + i) % nodes();
      if (Uses(each, pending.block) != pending.uses) continue;
      if (Has(each, pending.block) == held && wanted[each].Add(pending.block)) return true;
    }
    return false;
  }
};

}  // namespace

const PlacementFactory& Frequency() {
  static const FactoryOf<FrequencyPlacement> factory("frequency", /*clairvoyant=*/true);
  return factory;
}

const PlacementFactory& Coordinated() {
  static const FactoryOf<CoordinatedPlacement> factory("coordinated", /*clairvoyant=*/true);
  return factory;
}

}  // namespace headrace::placement
