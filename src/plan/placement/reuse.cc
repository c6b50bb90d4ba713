#include <algorithm>
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
// A copy of a block is *spare* where another node has one, too, else the *last*. It is needed when
// its node uses it next, a last one when any node does; uses from horizon_epochs ahead of the step
// on are not seen. After each use of a block by a node, in the order of the uses:
//   1. A copy that its node does not use again, or not before step 1 of the epoch after next (I
//      steps an epoch, step h of this one: further than 2I - h), goes, unless it is the last and
//      some node uses it.
//   2. A block that the node has not is offered to its tiers, fastest first, if by rule 1 it would
//      stay. A tier takes it if there is room or if copies needed later make it, farthest first:
//      spare ones, then for what would be a last copy also last ones. They are offered to the next
//      tier.
//   3. A copy that becomes spare and is not used again by its node goes.
// After a step's uses, room that is left takes what its node needs next, by rule 1 and in order, as
// far as it fits.
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
    const std::uint64_t first = node() == 0 ? front.first : front.node_ends[node() - 1];
    used_.clear();
    for (std::uint64_t use = first; use < front.node_ends[node()]; ++use) {
      used_.push_back(window_.Block(use));
    }
    PlacedStep step = Begin(at_, used_);
    if (!started_) Start();
    started_ = true;
    while (window_.begin() < front.end) Use();
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

  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override {
    return LocateIn(nodes_, block);
  }

  bool Extend(Position limit) {
    if (!window_.Extend(limit)) return false;
    const UseWindow::Step& step = window_.steps().back();
    late_.emplace_back(step.at, step.end);
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
        const bool wanted = copies_[block] > 1 ? OwnNext(each, block) != kNone : AnyNext(block);
        if (wanted) return;
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

  // The first use of a block by a node from the window's begin on, which is looked for as far as
  // the horizon; kNone: there is none.
  std::uint64_t OwnNext(std::uint32_t each, std::uint32_t block) {
    std::uint64_t use = window_.First(block);
    std::uint64_t before = kNone;
    while (true) {
      while (use != kNone && window_.Node(use) != each) {
        before = use;
        use = window_.After(use);
      }
      if (use != kNone || !Extend(horizon_)) return use;
      use = before == kNone ? window_.First(block) : window_.After(before);
    }
  }

  // Whether any node uses it.
  bool AnyNext(std::uint32_t block) {
    while (window_.First(block) == kNone && Extend(horizon_)) {
    }
    return window_.First(block) != kNone;
  }

  // Rule 1's limit: uses from this one on are further than 2I - h steps.
  std::uint64_t LateFrom() {
    const auto soon = [&](Position at) {
      return at.epoch < at_.epoch + 2 || (at.epoch == at_.epoch + 2 && at.step == 0);
    };
    while (!late_.empty() && soon(late_.front().first)) {
      soon_end_ = late_.front().second;
      late_.pop_front();
    }
    return soon_end_;
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
    const std::uint64_t any = window_.First(block);
    const bool soon = own != kNone && own < LateFrom();
    if (!has && sole) {
      any != kNone ? List(other, block) : Drop(other, block);
    }
    const bool last = copies_[block] == (has ? 1 : 0);
    if (soon || (last && any != kNone)) {
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
      std::vector<Victim> victims;
      if (tier != from) {
        if (!tiers.CanHold(tier, block) || !FindRoom(each, tier, block, copy, victims)) continue;
        // Used just now, so that its bytes are at hand: its place is free for a victim.
        if (!victims.empty() && from > tier) tiers.Move(block, kNoTier);
        for (const Victim& victim : victims) Unlist(each, tier, victim.copy);
        for (const Victim& victim : victims) {
          Offer(each, victim.block, victim.copy, static_cast<TierNumber>(tier + 1));
        }
        tiers.Move(block, tier);
      }
      from == kNoTier ? Added(each, block) : List(each, block);
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

  // A node has got a copy, which is in no list yet.
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
    List(each, block);
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
        if (!Extend(horizon_)) return;
      }
      if (next >= LateFrom()) return;
      const std::uint32_t block = window_.Block(next);
      if (window_.Node(next) == each && !tiers.Has(block)) {
        const TierNumber tier = tiers.WithRoom(block);
        if (tier != kNoTier) {
          tiers.Move(block, tier);
          Added(each, block);
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
  bool active_ = false;                // whether any tier can hold anything
  bool started_ = false;               // whether what was held is sorted out
  std::vector<std::uint16_t> copies_;  // of each block
  // What each tier has, [node][tier], by the use it is kept for.
  std::vector<std::vector<UseBits>> spare_;
  std::vector<std::vector<UseBits>> last_;
  std::uint64_t bits_size_ = 0;       // of each
  std::vector<std::uint64_t> ahead_;  // by node: before this use nothing is left to load ahead
  Position at_;
  Position horizon_;  // from here on nothing is seen
  // Ends of the steps looked at that are further than rule 1's limit, and the last end before it.
  std::deque<std::pair<Position, std::uint64_t>> late_;
  std::uint64_t soon_end_ = 0;
  std::vector<std::uint32_t> used_;
};

}  // namespace

const PlacementFactory& Reuse() {
  static const FactoryOf<ReusePlacement> factory("reuse", /*clairvoyant=*/true);
  return factory;
}

}  // namespace headrace::placement
