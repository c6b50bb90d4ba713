#include "plan/placement/tiers.h"

namespace headrace::placement {
namespace {

constexpr std::uint32_t kNil = 0xffff'ffff;  // no block

// Blocks in the order of their last use, in several lists; each block in one list at most.
class UseLists {
 public:
  UseLists(std::uint32_t blocks, std::size_t lists) : links_(blocks), ends_(lists) {}

  void PushFront(std::size_t list, std::uint32_t block) {
    Link& ends = ends_[list];
    links_[block] = {.newer = kNil, .older = ends.newer};
    (ends.newer == kNil ? ends.older : links_[ends.newer].newer) = block;
    ends.newer = block;
  }
  void Remove(std::size_t list, std::uint32_t block) {
    Link& ends = ends_[list];
    const Link link = links_[block];
    (link.newer == kNil ? ends.newer : links_[link.newer].older) = link.older;
    (link.older == kNil ? ends.older : links_[link.older].newer) = link.newer;
  }
  // kNil: the list is empty.
  [[nodiscard]] std::uint32_t Oldest(std::size_t list) const { return ends_[list].older; }

 private:
  struct Link {
    std::uint32_t newer = kNil;
    std::uint32_t older = kNil;
  };

  std::vector<Link> links_;
  std::vector<Link> ends_;  // the newest and the oldest of each list
};

// `lru`: a page cache. Every use puts its block into the fastest tier that can hold it; the least
// recently used block makes room and moves one tier down.
class LruPlacement final : public Planner {
 public:
  LruPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : Planner(std::move(request)),
        stream_(std::move(stream)),
        tiers_(MakeTiers()),
        lists_(block_count(), tiers_.count()) {
    std::vector<std::pair<TierNumber, std::uint32_t>> held;
    ForHeld(node(), [&](std::uint32_t block, TierNumber tier) { held.emplace_back(tier, block); });
    for (std::size_t i = held.size(); i > 0; --i) {
      lists_.PushFront(held[i - 1].first, held[i - 1].second);
    }
  }

  std::optional<PlacedStep> Next() override {
    if (!stream_->Next(uses_)) return std::nullopt;
    const std::span<const std::uint32_t> own = OwnUses(uses_);
    PlacedStep step = Begin(uses_.at, own);
    for (const std::uint32_t block : own) Use(block);
    Finish(step, tiers_);
    return step;
  }

 private:
  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override {
    return {.block = block, .tier = tiers_.Of(block)};
  }

  void Use(std::uint32_t block) {
    const TierNumber from = tiers_.Of(block);
    if (from != kNoTier) lists_.Remove(from, block);
    TierNumber to = 0;
    while (to < tiers_.count() && !tiers_.CanHold(to, block)) ++to;
    if (to == tiers_.count()) return;
    if (from != to) {
      // Its place may be needed for a victim that moves down.
      if (!tiers_.HasRoom(to, block)) tiers_.Move(block, kNoTier);
      MakeRoom(to, block);
      tiers_.Move(block, to);
    }
    lists_.PushFront(to, block);
  }

  void MakeRoom(TierNumber tier, std::uint32_t block) {
    while (!tiers_.HasRoom(tier, block)) {
      const std::uint32_t victim = lists_.Oldest(tier);
      lists_.Remove(tier, victim);
      TierNumber to = static_cast<TierNumber>(tier + 1);
      while (to < tiers_.count() && !tiers_.CanHold(to, victim)) ++to;
      if (to == tiers_.count()) {
        tiers_.Move(victim, kNoTier);
      } else {
        MakeRoom(to, victim);
        tiers_.Move(victim, to);
        lists_.PushFront(to, victim);
      }
    }
  }

  const std::unique_ptr<UseStream> stream_;
  NodeTiers tiers_;
  UseLists lists_;  // one a tier
  StepUses uses_;
};

}  // namespace

const PlacementFactory& Lru() {
  static const FactoryOf<LruPlacement> factory("lru", /*clairvoyant=*/false);
  return factory;
}

}  // namespace headrace::placement
