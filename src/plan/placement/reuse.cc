#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <string>

#include "base/check.h"
#include "plan/placement/tiers.h"
#include "plan/placement/use_bits.h"
#include "plan/placement/use_window.h"

namespace headrace::placement {
namespace {

constexpr std::uint64_t kNone = UseWindow::kNone;

// `reuse` (Lobster: Liu et al., ICPP'22, made to run): all nodes are planned together.
//
// A copy of a block is *spare* where another node has one, too, else the *last*. A use is *soon*
// where step s of epoch e is at most 2I - s steps before it (I steps an epoch): up to the first
// step of epoch e + 2. Uses from horizon_epochs ahead on are not seen at all. A copy is *needed*
// when its node uses it next, if that is soon; a last one when any node does. After each use of a
// block by a node, in the order of the uses:
//   1. A copy that is not needed goes.
//   2. A block that the node has not, or in a slower tier, is offered to its tiers, fastest first,
//      if it is needed. A tier takes it if there is room or if copies needed later make it,
//      farthest first: spare ones, and for what is a last copy then also last ones. They are
//      offered to the next tier.
//   3. A copy that becomes spare and is not needed then goes.
// After a step's uses, room that is left takes what its node needs soon, next use first, as far as
// it fits.
//
// Looks ahead only as far as a decision needs: two epochs, where every block is used in each.
class ReusePlacement final : public Planner {
 public:
  static Result<std::unique_ptr<Placement>> Make(PlacementRequest request) {
    if (request.capacity_units.size() > std::numeric_limits<std::uint16_t>::max()) {
      return Status(StatusCode::kInvalidArgument,
                    "placement reuse: got " + std::to_string(request.capacity_units.size()) +
                        " nodes, must be below 65536; use 'frequency'");
    }
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
    return std::unique_ptr<Placement>(
        std::make_unique<ReusePlacement>(std::move(request), std::move(stream)));
  }

  ReusePlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : Planner(std::move(request)),
        window_(std::move(stream), block_count(), std::nullopt),
        nodes_(MakeAllTiers()),
        copies_(block_count()),
        ahead_(nodes_.size()) {
    for (const NodeTiers& tiers : nodes_) {
      spare_.emplace_back(tiers.count());
      last_.emplace_back(tiers.count());
      for (TierNumber tier = 0; tier < tiers.count(); ++tier) {
        active_ = active_ || tiers.Capacity(tier) > 0;
      }
    }
  }

  std::optional<PlacedStep> Next() override {
    if (window_.steps().empty() && !Extend(kEnd)) return std::nullopt;
    const UseWindow::Step front = window_.steps().front();
    HEADRACE_CHECK(front.node_ends.size() == nodes());
    at_ = front.at;
    horizon_ = {.epoch = at_.epoch + std::min(request().horizon_epochs, kEnd.epoch - at_.epoch),
                .step = at_.step};
    soon_ = std::min(horizon_, {.epoch = at_.epoch + 2, .step = 1}, Before);
    while (!late_.empty() && Before(late_.front().first, soon_)) {
      soon_end_ = late_.front().second;
      late_.pop_front();
    }
    const std::uint64_t first = node() == 0 ? front.first : front.node_ends[node() - 1];
    used_.clear();
    for (std::uint64_t use = first; use < front.node_ends[node()]; ++use) {
      used_.push_back(window_.Block(use));
    }
    PlacedStep step = Begin(at_, used_);
    if (!started_) Start();
    started_ = true;
    while (window_.begin() < front.end) {
      Expect(window_.begin() + UseWindow::kAhead);
      Use();
    }
    window_.PassStep();
    for (std::uint32_t each = 0; active_ && each < nodes(); ++each) LoadAhead(each);
    Finish(step, nodes_[node()]);
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::map<std::string, double> all = Planner::counters();
    all["coverage_units"] = CoverageUnits(nodes_);
    return all;
  }

 private:
  static constexpr Position kEnd = {.epoch = std::numeric_limits<std::uint64_t>::max(),
                                    .step = std::numeric_limits<std::uint64_t>::max()};

  static bool Before(Position a, Position b) {
    return a.epoch < b.epoch || (a.epoch == b.epoch && a.step < b.step);
  }

  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override {
    return LocateIn(nodes_, block);
  }

  bool Extend(Position limit) {
    if (!window_.Extend(limit)) return false;
    const UseWindow::Step& step = window_.steps().back();
    if (Before(step.at, soon_)) {
      soon_end_ = step.end;
    } else {
      late_.emplace_back(step.at, step.end);
    }
    if (bits_size_ == window_.size() || !active_) return true;
    bits_size_ = window_.size();
    for (auto* lists : {&spare_, &last_}) {
      for (std::vector<UseBits>& tiers : *lists) {
        for (UseBits& bits : tiers) bits.Grow(bits_size_, window_.begin());
      }
    }
    return true;
  }

  // Sorts out what is held at the start.
  void Start() {
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber /*tier*/) { ++copies_[block]; });
    }
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber /*tier*/) {
        const std::uint64_t wanted = copies_[block] > 1 ? OwnNext(each, block) : AnyNext(block);
        if (wanted != kNone) return;
        nodes_[each].Move(block, kNoTier);
        --copies_[block];
      });
    }
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber /*tier*/) {
        if (nodes_[each].Has(block)) List(each, block);
      });
    }
  }

  // The first use of a block by a node from the window's begin on, if it is soon; kNone: else.
  std::uint64_t OwnNext(std::uint32_t each, std::uint32_t block) {
    std::uint64_t use = window_.First(block);
    std::uint32_t node = window_.FirstNode(block);
    std::uint64_t before = kNone;
    while (true) {
      while (use < soon_end_ && node != each) {
        before = use;
        node = window_.NodeAfter(use);
        use = window_.After(use);
      }
      if (use < soon_end_) return use;
      if (use != kNone || !Extend(soon_)) return kNone;
      use = before == kNone ? window_.First(block) : window_.After(before);
      node = before == kNone ? window_.FirstNode(block) : window_.NodeAfter(before);
    }
  }

  // The first use by any node; kNone: none is seen.
  std::uint64_t AnyNext(std::uint32_t block) {
    while (window_.First(block) == kNone && Extend(horizon_)) {
    }
    return window_.First(block);
  }

  void Expect(std::uint64_t use) const {
    window_.Expect(use);
    if (use >= window_.end()) return;
    __builtin_prefetch(&copies_[window_.Block(use)]);
    nodes_[window_.Node(use)].Expect(window_.Block(use));
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
    const bool has = nodes_[each].Has(block);
    const std::uint32_t other = !has && copies_[block] == 1 ? OtherHolder(each, block) : each;
    const bool sole = copies_[block] == 1;
    if (sole) last_[other][nodes_[other].Of(block)].Clear(use);
    if (has && !sole) spare_[each][nodes_[each].Of(block)].Clear(use);
    window_.Pass();
    const std::uint64_t own = OwnNext(each, block);
    const std::uint64_t any = copies_[block] > 1 ? kNone : AnyNext(block);
    if (!has && sole) {
      any != kNone ? List(other, block) : Drop(other, block);
    }
    const bool last = copies_[block] == (has ? 1 : 0);
    if (own != kNone || (last && any != kNone)) {
      Offer(each, block, {.need = last ? any : own, .last = last}, 0);
    } else if (has) {
      Drop(each, block);
    }
  }

  struct Copy {
    std::uint64_t need = 0;  // the use that it is kept for
    bool last = false;
  };

  // Finds a tier for a block that is in no list: from `first` on, up to the one that has it now.
  // Out of its tier if there is none.
  void Offer(std::uint32_t each, std::uint32_t block, Copy copy, TierNumber first) {
    NodeTiers& tiers = nodes_[each];
    const TierNumber from = tiers.Of(block);
    for (TierNumber tier = first; tier < tiers.count(); ++tier) {
      if (tier != from) {
        std::vector<Victim>& victims = victims_[tier];  // Those of later tiers come in between.
        victims.clear();
        if (!tiers.CanHold(tier, block) || !FindRoom(each, tier, block, copy, victims)) continue;
        // Used just now, so that its bytes are at hand: its place is free for a victim.
        if (!victims.empty() && from > tier) tiers.Move(block, kNoTier);
        for (const Victim& victim : victims) Unlist(each, tier, victim.copy);
        for (const Victim& victim : victims) {
          Offer(each, victim.block, victim.copy, static_cast<TierNumber>(tier + 1));
        }
        tiers.Move(block, tier);
      }
      if (from == kNoTier) Added(each, block);
      // What a spare copy is needed for is known; another may just have become the last.
      copies_[block] == 1 ? List(each, block) : spare_[each][tier].Set(copy.need);
      return;
    }
    if (from != kNoTier) Drop(each, block);
  }

  struct Victim {
    std::uint32_t block;
    Copy copy;
  };

  // Copies in a tier that make room for one: needed later than it, farthest first.
  bool FindRoom(std::uint32_t each, TierNumber tier, std::uint32_t block, Copy copy,
                std::vector<Victim>& victims) {
    const NodeTiers& tiers = nodes_[each];
    if (tiers.HasRoom(tier, block)) return true;
    const std::uint64_t needed = sizes().Of(block) - tiers.Free(tier);
    std::uint64_t found = 0;
    for (const bool last : {false, true}) {
      if (last && !copy.last) break;
      const UseBits& bits = (last ? last_ : spare_)[each][tier];
      std::uint64_t before = window_.end();
      while (found < needed) {
        before = bits.Greatest(copy.need + 1, before);
        if (before == UseBits::kNone) break;
        victims.push_back({.block = window_.Block(before), .copy = {.need = before, .last = last}});
        found += sizes().Of(victims.back().block);
      }
    }
    return found >= needed;
  }

  // A node has got a copy, which is in no list yet. Another's may go for it.
  void Added(std::uint32_t each, std::uint32_t block) {
    if (++copies_[block] == 2) {
      const std::uint32_t other = OtherHolder(each, block);
      Unlist(other, nodes_[other].Of(block), {.need = window_.First(block), .last = true});
      if (OwnNext(other, block) != kNone) {
        List(other, block);
      } else {
        --copies_[block];
        Leave(other, block);
      }
    }
  }

  // A node loses its copy, which is in no list.
  void Drop(std::uint32_t each, std::uint32_t block) {
    Leave(each, block);
    if (--copies_[block] != 1) return;
    const std::uint32_t other = OtherHolder(each, block);
    Unlist(other, nodes_[other].Of(block), {.need = OwnNext(other, block), .last = false});
    List(other, block);
  }

  void Leave(std::uint32_t each, std::uint32_t block) {
    nodes_[each].Move(block, kNoTier);
    if (ahead_[each] <= window_.begin()) return;
    ahead_[each] = std::min(ahead_[each], OwnNext(each, block));
  }

  void List(std::uint32_t each, std::uint32_t block) {
    const TierNumber tier = nodes_[each].Of(block);
    if (copies_[block] == 1) {
      last_[each][tier].Set(window_.First(block));
    } else {
      spare_[each][tier].Set(OwnNext(each, block));
    }
  }
  void Unlist(std::uint32_t each, TierNumber tier, Copy copy) {
    (copy.last ? last_ : spare_)[each][tier].Clear(copy.need);
  }

  [[nodiscard]] std::uint32_t OtherHolder(std::uint32_t each, std::uint32_t block) const {
    std::uint32_t other = 0;
    while (other == each || !nodes_[other].Has(block)) ++other;
    return other;
  }

  // Fills the room of a node with what it needs next.
  void LoadAhead(std::uint32_t each) {
    NodeTiers& tiers = nodes_[each];
    std::uint64_t& next = ahead_[each];
    next = std::max(next, window_.begin());
    while (!tiers.Full()) {
      while (next >= window_.end()) {
        if (!Extend(soon_)) return;
      }
      if (next >= soon_end_) return;
      const std::uint32_t block = window_.Block(next);
      if (window_.Node(next) == each && !tiers.Has(block)) {
        const TierNumber tier = tiers.WithRoom(block);
        if (tier != kNoTier) {
          tiers.Move(block, tier);
          Added(each, block);
          copies_[block] == 1 ? List(each, block) : spare_[each][tier].Set(next);
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

  UseWindow window_;
  std::vector<NodeTiers> nodes_;
  std::array<std::vector<Victim>, kTiersMax> victims_;  // by tier, while a block is offered
  bool active_ = false;                                 // whether any tier can hold anything
  bool started_ = false;                                // whether what was held is sorted out
  std::vector<std::uint16_t> copies_;                   // of each block
  // What each tier has, [node][tier], by the use it is kept for.
  std::vector<std::vector<UseBits>> spare_;
  std::vector<std::vector<UseBits>> last_;
  std::uint64_t bits_size_ = 0;       // of each
  std::vector<std::uint64_t> ahead_;  // by node: before this use nothing is left to load ahead
  Position at_;
  Position horizon_;                                     // from here on nothing is seen
  Position soon_;                                        // from here on nothing is soon
  std::uint64_t soon_end_ = 0;                           // of the uses looked at that are soon
  std::deque<std::pair<Position, std::uint64_t>> late_;  // steps looked at that are not, their ends
  std::vector<std::uint32_t> used_;
};

}  // namespace

const PlacementFactory& Reuse() {
  static const FactoryOf<ReusePlacement> factory("reuse", /*clairvoyant=*/true);
  return factory;
}

}  // namespace headrace::placement
