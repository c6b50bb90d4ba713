#include "plan/placement/tiers.h"

namespace headrace::placement {
namespace {

// `none`: keeps nothing. Evicts what is held at the start with the first step.
class NonePlacement final : public Planner {
 public:
  NonePlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : Planner(std::move(request)), stream_(std::move(stream)), tiers_(MakeTiers()) {}

  std::optional<PlacedStep> Next() override {
    if (!stream_->Next(uses_)) return std::nullopt;
    PlacedStep step = Begin(uses_.at, OwnUses(uses_));
    if (!emptied_) {
      ForHeld(node(),
              [&](std::uint32_t block, TierNumber /*tier*/) { tiers_.Move(block, kNoTier); });
      emptied_ = true;
    }
    Finish(step, tiers_);
    return step;
  }

 private:
  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override {
    return {.block = block, .tier = tiers_.Of(block)};
  }

  const std::unique_ptr<UseStream> stream_;
  NodeTiers tiers_;
  StepUses uses_;
  bool emptied_ = false;  // whether the blocks held at the start are evicted
};

}  // namespace

const PlacementFactory& None() {
  static const FactoryOf<NonePlacement> factory("none", /*clairvoyant=*/false,
                                                /*keeps_blocks=*/false);
  return factory;
}

}  // namespace headrace::placement
