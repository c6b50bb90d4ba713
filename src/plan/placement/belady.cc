#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "plan/placement/tiers.h"
#include "plan/placement/use_bits.h"
#include "plan/placement/use_reader.h"
#include "plan/placement/use_window.h"

namespace headrace::placement {
namespace {

constexpr std::uint64_t kNone = UseWindow::kNone;

// `belady`: each node keeps what it uses soonest, independent of the others (Belady 1966, with
// bypass).
//
// After its use a block is offered to the tiers, fastest first. A tier takes it if there is room,
// or if evicting blocks that are needed later makes room: those with the farthest next use go
// first, and are offered to the next tier. A block that no tier takes is not kept. Uses from
// horizon_epochs ahead of the step on are not seen: blocks without a seen use count as the
// farthest, the highest numbers first, and do not displace each other. A block that the run does
// not use again is not inserted.
//
// Reads ahead only as far as a decision needs: with one node until the end of the next epoch.
class BeladyPlacement final : public Planner {
 public:
  BeladyPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : Planner(std::move(request)),
        window_(block_count(), node(), /*firsts=*/false),
        reader_(std::move(stream), window_),
        tiers_(MakeTiers()),
        near_(tiers_.count()),
        far_(tiers_.count()) {
    for (UseBits& far : far_) {
      far.Grow(std::bit_ceil(std::max<std::uint64_t>(block_count(), 64)), 0);
    }
    ForHeld(node(), [&](std::uint32_t block, TierNumber tier) { far_[tier].Set(block); });
    active_ = std::ranges::any_of(request_capacity(), [](std::uint64_t c) { return c > 0; });
  }

  std::optional<PlacedStep> Next() override {
    if (reader_.steps().empty() && !Extend(kEnd)) return std::nullopt;
    const UseReader::Step& front = reader_.steps().front();
    const Position at = front.at;
    const std::uint64_t end = front.end;
    const std::uint64_t ahead = std::min(request().horizon_epochs, kEnd.epoch - at.epoch);
    horizon_ = {.epoch = at.epoch + ahead, .step = at.step};
    used_.clear();
    for (std::uint64_t use = window_.begin(); use < end; ++use) {
      used_.push_back(window_.Block(use));
      tiers_.Expect(used_.back());
      ExpectUse(used_.back());
    }
    PlacedStep step = Begin(at, used_);
    while (window_.begin() < end) {
      Expect(window_.begin() + kAhead);
      Use();
    }
    reader_.PassStep();
    Finish(step, tiers_);
    return step;
  }

 private:
  static constexpr Position kEnd = {.epoch = std::numeric_limits<std::uint64_t>::max(),
                                    .step = std::numeric_limits<std::uint64_t>::max()};

  [[nodiscard]] const std::vector<std::uint64_t>& request_capacity() const {
    return request().capacity_units[node()];
  }

  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override {
    return {.block = block, .tier = tiers_.Of(block)};
  }

  // Reads one step further. Blocks may get a seen next use.
  bool Extend(Position limit) {
    if (!reader_.Extend(limit)) return false;
    if (near_size_ != window_.size()) {
      near_size_ = window_.size();
      for (UseBits& near : near_) near.Grow(near_size_, window_.begin());
    }
    for (const std::uint64_t use : reader_.fresh()) {
      const std::uint32_t block = window_.Block(use);
      const TierNumber tier = tiers_.Of(block);
      if (tier == kNoTier || !far_[tier].Has(block)) continue;
      far_[tier].Clear(block);
      near_[tier].Set(use);
    }
    return true;
  }

  [[gnu::always_inline]] void Expect(std::uint64_t use) const {
    if (use >= window_.end() || !active_) return;
    const std::uint64_t next = window_.After(use);
    if (next == kNone) return;
    for (const UseBits& near : near_) near.Expect(next);
  }

  // Takes the first use of the window.
  void Use() {
    const std::uint64_t use = window_.begin();
    const std::uint32_t block = window_.Block(use);
    const TierNumber from = tiers_.Of(block);
    if (!active_) {
      window_.Pass();
      return;
    }
    if (from != kNoTier) near_[from].Clear(use);
    while (window_.After(use) == kNone && Extend(horizon_)) {
    }
    const std::uint64_t next = window_.After(use);
    window_.Pass();
    if (next == kNone && reader_.ended()) {  // Never again: it stays until its place is needed.
      if (from != kNoTier) far_[from].Set(block);
      return;
    }
    Offer(block, next, from, 0);
  }

  // Finds a tier for a block of tier `from` that is in no list: from `first` on, up to the tier
  // that has it now. Evicts it if no tier takes it.
  void Offer(std::uint32_t block, std::uint64_t next, TierNumber from, TierNumber first) {
    const bool used_again = next != kNone || !reader_.ended();
    for (TierNumber tier = first; tier < tiers_.count() && used_again; ++tier) {
      if (tier != from) {
        std::vector<Victim>& victims = victims_[tier];  // Later tiers have their own.
        victims.clear();
        if (!tiers_.CanHold(tier, block) || !FindRoom(tier, block, next, victims)) continue;
        // This block was just used, so its bytes can be copied: its place is free for a victim.
        if (!victims.empty() && from > tier)
          tiers_.Move(block, std::exchange(from, kNoTier), kNoTier);
        for (const Victim& victim : victims) Unlist(victim, tier);
        for (const Victim& victim : victims) {
          Offer(victim.block, victim.next, tier, static_cast<TierNumber>(tier + 1));
        }
        tiers_.Move(block, from, tier);
      }
      List(block, next, tier);
      return;
    }
    tiers_.Move(block, from, kNoTier);
  }

  struct Victim {
    std::uint32_t block;
    std::uint64_t next;  // kNone: beyond the horizon
  };

  // Blocks of a tier that are needed later than `next`, farthest first, as many as make room.
  bool FindRoom(TierNumber tier, std::uint32_t block, std::uint64_t next,
                std::vector<Victim>& victims) {
    if (tiers_.HasRoom(tier, block)) return true;
    if (next == kNone) return false;  // Equally far: the resident block stays.
    while (!far_[tier].empty() && Extend(horizon_)) {
    }
    const std::uint64_t needed = sizes().Of(block) - tiers_.Free(tier);
    std::uint64_t found = 0;
    const auto add = [&](std::uint32_t victim, std::uint64_t victim_next) {
      victims.push_back({.block = victim, .next = victim_next});
      found += sizes().Of(victim);
    };
    std::uint64_t below = block_count();
    while (found < needed) {
      const std::uint64_t victim = far_[tier].Greatest(0, below);
      if (victim == UseBits::kNone) break;
      add(static_cast<std::uint32_t>(victim), kNone);
      below = victim;
    }
    std::uint64_t before = window_.end();
    while (found < needed) {
      before = near_[tier].Greatest(next + 1, before);
      if (before == UseBits::kNone) return false;
      add(window_.Block(before), before);
    }
    return true;
  }

  void List(std::uint32_t block, std::uint64_t next, TierNumber tier) {
    next == kNone ? far_[tier].Set(block) : near_[tier].Set(next);
  }
  void Unlist(const Victim& victim, TierNumber tier) {
    victim.next == kNone ? far_[tier].Clear(victim.block) : near_[tier].Clear(victim.next);
  }

  // Prefetches the next use this many uses before Use() reaches it.
  static constexpr std::uint64_t kAhead = 8;

  UseWindow window_;
  UseReader reader_;
  NodeTiers tiers_;
  std::array<std::vector<Victim>, kTiersMax> victims_;  // by tier
  bool active_ = false;  // whether any tier of the node can hold a block
  // The blocks of each tier: by their next use, and by block number if no use is seen.
  std::vector<UseBits> near_;
  std::vector<UseBits> far_;
  std::uint64_t near_size_ = 0;  // of near_
  Position horizon_;             // uses from here on are not seen
  std::vector<std::uint32_t> used_;
};

}  // namespace

const PlacementFactory& Belady() {
  static const FactoryOf<BeladyPlacement> factory("belady", /*clairvoyant=*/true);
  return factory;
}

}  // namespace headrace::placement
