#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "plan/placement/nodes_planner.h"
#include "plan/placement/reuse/copy_lists.h"
#include "plan/placement/reuse/next_uses.h"
#include "plan/placement/tiers.h"
#include "plan/placement/use_window.h"

namespace headrace::placement {
namespace {

constexpr std::uint64_t kNoUse = UseWindow::kNone;

// `reuse` (Lobster: Liu et al., ICPP'22, completed): plans all nodes together.
//
// A copy of a block is *spare* if another node has one, too, otherwise the *last*. A use is *soon*
// if it is at most 2I - s steps after step s of epoch e (I steps an epoch): up to the first step of
// epoch e + 2. Uses from horizon_epochs ahead on are not seen at all. A copy is *needed* if its
// node's next use of it is soon; a last copy also if any node's next use is. After each use of a
// block by a node, in the order of the uses:
//   1. A copy that is not needed is evicted.
//   2. A block that the node does not have, or has in a slower tier, is offered to its tiers,
//      fastest first, if it is needed. A tier takes it if there is room, or if evicting copies
//      needed later makes room, farthest first: spare ones, and for a last copy then also last
//      ones. These are offered to the next tier.
//   3. A copy that becomes spare and is not needed is then evicted.
// After a step's uses, remaining room takes what its node needs soon, next use first, as far as it
// fits.
//
// Reads ahead only as far as a decision needs: two epochs, if every block is used in each.
class ReusePlacement final : public NodesPlanner {
 public:
  static Result<std::unique_ptr<Placement>> Make(PlacementRequest request) {
    if (request.capacity_units.size() > std::numeric_limits<std::uint16_t>::max()) {
      return InvalidArgument("placement reuse: got {} nodes, must be below 65536; use 'frequency'",
                             request.capacity_units.size());
    }
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
    return std::unique_ptr<Placement>(
        std::make_unique<ReusePlacement>(std::move(request), std::move(stream)));
  }

  ReusePlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : NodesPlanner(std::move(request)),
        several_(nodes() > 1),
        window_(block_count(), several_ ? std::nullopt : std::optional<std::uint32_t>(0),
                /*firsts=*/true),
        next_(std::move(stream), window_),
        copies_(several_ ? block_count() : 0),
        lists_(window_, sizes(), nodes_),
        ahead_(nodes_.size()) {
    for (const NodeTiers& tiers : nodes_) {
      for (TierNumber tier = 0; tier < tiers.count(); ++tier) {
        active_ = active_ || tiers.Capacity(tier) > 0;
      }
    }
  }

  const StepUses* Enter() override {
    step_ = next_.Enter(request().horizon_epochs);
    if (step_ == nullptr) return nullptr;
    HEADRACE_CHECK(!several_ || step_->node_ends.size() == nodes());
    uses_.at = step_->at;
    uses_.ends_epoch = step_->ends_epoch;
    uses_.blocks.clear();
    for (std::uint64_t use = step_->first; use < step_->end; ++use) {
      uses_.blocks.push_back(window_.Block(use));
    }
    uses_.node_ends.clear();
    if (!several_) uses_.node_ends.push_back(step_->end - step_->first);
    for (const std::uint64_t end : step_->node_ends) uses_.node_ends.push_back(end - step_->first);
    for (const std::uint32_t block : OwnUses(uses_)) {
      nodes_[node()].Expect(block);
      ExpectUse(block);
    }
    return &uses_;
  }

  void Advance() override {
    if (!started_) Start();
    started_ = true;
    const std::uint64_t end = step_->end;
    while (window_.begin() < end) {
      Expect(window_.begin() + kAhead);
      Use();
    }
    next_.PassStep();
    for (std::uint32_t each = 0; active_ && each < nodes(); ++each) LoadAhead(each);
  }

 private:
  // Classifies what is held at the start.
  void Start() {
    for (std::uint32_t each = 0; each < nodes() && several_; ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber /*tier*/) { ++copies_[block]; });
    }
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber tier) {
        const std::uint64_t wanted =
            Copies(each, block) > 1 ? next_.OwnNext(each, block) : next_.AnyNext(block);
        if (wanted != kNoUse) return;
        nodes_[each].Move(block, tier, kNoTier);
        if (several_) --copies_[block];
      });
    }
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber tier) {
        if (nodes_[each].Has(block)) List(each, block, tier);
      });
    }
    if (!several_) window_.ForgetFirsts();  // Passing a use gives the next one.
  }

  // Number of nodes with a copy; valid if no node but `each` may hold the only one.
  [[nodiscard]] std::uint32_t Copies(std::uint32_t each, std::uint32_t block) const {
    return several_ ? copies_[block] : nodes_[each].Has(block) ? 1 : 0;
  }

  [[gnu::always_inline]] void Expect(std::uint64_t use) const {
    if (use >= window_.end() || !active_) return;
    const std::uint32_t block = window_.Block(use);
    const std::uint32_t each = window_.Node(use);
    nodes_[each].Expect(block);
    if (several_) {
      window_.Expect(use);
      __builtin_prefetch(&copies_[block]);
    }
    const std::uint64_t next = window_.After(use);
    if (next == kNoUse) return;
    if (several_) window_.ExpectAt(next);
    lists_.Expect(each, next);
  }

  // Takes the first use of the window.
  void Use() {
    const std::uint64_t use = window_.begin();
    const std::uint32_t block = window_.Block(use);
    const std::uint32_t each = window_.Node(use);
    if (!active_) {
      window_.Pass();
      return;
    }
    const TierNumber from = nodes_[each].Of(block);
    const bool has = from != kNoTier;
    const bool sole = Copies(each, block) == 1;
    const std::uint32_t other = !has && sole ? OtherHolder(each, block) : each;
    if (sole) {
      lists_.Remove(other, has ? from : nodes_[other].Of(block), {.need = use, .last = true});
    } else if (has) {
      lists_.Remove(each, from, {.need = use});
    }
    const std::uint64_t own = next_.OwnAfter(each, use);
    const std::uint64_t any = !sole && Copies(each, block) > 0 ? kNoUse : next_.AnyAfter(use);
    window_.Pass();
    if (!has && sole) {
      const TierNumber tier = nodes_[other].Of(block);
      const Copy left{.need = any, .last = true};
      any != kNoUse ? lists_.Add(other, tier, left) : Drop(other, block, tier, left);
    }
    const bool last = Copies(each, block) == (has ? 1 : 0);
    if (own != kNoUse || (last && any != kNoUse)) {
      Offer(each, block, {.need = last ? any : own, .last = last}, from, 0);
    } else if (has) {
      Drop(each, block, from, {.last = last});
    }
  }

  // Finds a tier for a block of tier `from` that is in no list: from `first` on, up to the tier
  // that has it now. Evicts it if no tier takes it.
  void Offer(std::uint32_t each, std::uint32_t block, Copy copy, TierNumber from,
             TierNumber first) {
    NodeTiers& tiers = nodes_[each];
    const bool had = from != kNoTier;
    for (TierNumber tier = first; tier < tiers.count(); ++tier) {
      if (tier != from) {
        std::vector<Victim>& victims = victims_[tier];  // Later tiers have their own.
        victims.clear();
        if (!tiers.CanHold(tier, block)) continue;
        if (!tiers.HasRoom(tier, block) &&
            !lists_.FindLater(each, tier, copy, sizes().Of(block) - tiers.Free(tier), victims)) {
          continue;
        }
        // This block was just used, so its bytes can be copied: its place is free for a victim.
        if (!victims.empty() && from > tier)
          tiers.Move(block, std::exchange(from, kNoTier), kNoTier);
        for (const Victim& victim : victims) lists_.Remove(each, tier, victim.copy);
        for (const Victim& victim : victims) {
          Offer(each, victim.block, victim.copy, tier, static_cast<TierNumber>(tier + 1));
        }
        tiers.Move(block, from, tier);
      }
      if (!had) Added(each, block);
      if (!copy.last && copies_[block] == 1) {  // The other copies were evicted meanwhile.
        List(each, block, tier);
      } else {
        lists_.Add(each, tier, copy);
      }
      return;
    }
    if (had) Drop(each, block, from, copy);
  }

  // A node got a copy, which is in no list yet. Another node's copy may be evicted for it.
  void Added(std::uint32_t each, std::uint32_t block) {
    if (!several_ || ++copies_[block] != 2) return;
    const std::uint32_t other = OtherHolder(each, block);
    const TierNumber tier = nodes_[other].Of(block);
    lists_.Remove(other, tier, {.need = window_.First(block), .last = true});
    const std::uint64_t own = next_.OwnNext(other, block);
    if (own != kNoUse) {
      lists_.Add(other, tier, {.need = own});
    } else {
      --copies_[block];
      nodes_[other].Move(block, tier, kNoTier);  // The other node will not load it ahead.
    }
  }

  // A node loses its copy, which is in no list.
  void Drop(std::uint32_t each, std::uint32_t block, TierNumber from, Copy copy) {
    nodes_[each].Move(block, from, kNoTier);
    if (ahead_[each] > window_.begin() && copy.need < ahead_[each]) {
      const bool own = !copy.last || !several_;  // Otherwise other nodes may need it first.
      const std::uint64_t next = own ? copy.need : next_.OwnNext(each, block);
      if (next < next_.soon_end()) ahead_[each] = std::min(ahead_[each], next);
    }
    if (!several_) return;
    if (copy.last) {
      copies_[block] = 0;  // Write only: no read of memory that is far.
      return;
    }
    if (--copies_[block] != 1) return;
    const std::uint32_t other = OtherHolder(each, block);
    const TierNumber tier = nodes_[other].Of(block);
    lists_.Remove(other, tier, {.need = next_.OwnNext(other, block)});
    List(other, block, tier);
  }

  // Puts a copy into the list where its need finds it.
  void List(std::uint32_t each, std::uint32_t block, TierNumber tier) {
    const bool last = Copies(each, block) == 1;
    const std::uint64_t need = last ? window_.First(block) : next_.OwnNext(each, block);
    lists_.Add(each, tier, {.need = need, .last = last});
  }

  [[gnu::always_inline]] void ExpectLoad(std::uint32_t each, std::uint64_t use) const {
    if (use >= window_.end() || window_.Node(use) != each) return;
    nodes_[each].Expect(window_.Block(use));
    if (!several_) return;
    window_.Expect(use);
    __builtin_prefetch(&copies_[window_.Block(use)]);
  }

  // Fills the room of a node with what it needs next.
  void LoadAhead(std::uint32_t each) {
    NodeTiers& tiers = nodes_[each];
    std::uint64_t& next = ahead_[each];
    next = std::max(next, window_.begin());
    bool full = tiers.Full();
    while (!full) {
      while (next >= window_.end()) {
        if (!next_.ReadSoon()) return;
      }
      if (next >= next_.soon_end()) return;
      ExpectLoad(each, next + kScanAhead);
      const std::uint32_t block = window_.Block(next);
      if (window_.Node(next) == each && !tiers.Has(block)) {
        const TierNumber tier = tiers.WithRoom(block);
        if (tier != kNoTier) {
          tiers.Move(block, kNoTier, tier);
          Added(each, block);
          const bool last = !several_ || copies_[block] == 1;
          const bool first = !several_ || window_.First(block) == next;
          last && !first ? List(each, block, tier)
                         : lists_.Add(each, tier, {.need = next, .last = last});
          full = tiers.Full();
        } else if (FitsSomewhere(tiers, block)) {
          return;
        }
      }
      ++next;
    }
  }

  static bool FitsSomewhere(const NodeTiers& tiers, std::uint32_t block) {
    for (TierNumber tier = 0; tier < tiers.count(); ++tier) {
      if (tiers.CanHold(tier, block)) return true;
    }
    return false;
  }

  // Prefetches a block this many uses before LoadAhead() reaches it.
  static constexpr std::uint64_t kScanAhead = 16;
  // The same for Use(): enough to hide a read of memory, and not more than fits the processor's
  // first cache and its TLB.
  static constexpr std::uint64_t kAhead = 8;

  const bool several_;  // nodes; with one every copy is the last
  UseWindow window_;
  NextUses next_;
  std::array<std::vector<Victim>, kTiersMax> victims_;  // by tier, while a block is offered
  bool active_ = false;                                 // whether any tier can hold anything
  bool started_ = false;                                // whether held blocks are classified
  std::vector<std::uint16_t> copies_;                   // of each block, with several nodes
  CopyLists lists_;
  std::vector<std::uint64_t> ahead_;       // by node: no use before this one is left to load ahead
  const UseReader::Step* step_ = nullptr;  // that was entered
  StepUses uses_;
};

}  // namespace

const PlacementFactory& Reuse() {
  static const NodesFactoryOf<ReusePlacement> factory("reuse", /*clairvoyant=*/true);
  return factory;
}

}  // namespace headrace::placement
