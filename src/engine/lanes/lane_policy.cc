#include "engine/lanes/lane_policy.h"

#include <algorithm>

namespace headrace {

Status FixedLanePolicy::Split(Position /*at*/, std::span<const LaneWork> work,
                              std::span<LaneShare> shares) {
  const auto lanes = static_cast<std::uint32_t>(work.size());
  for (std::uint32_t i = 0; i < lanes; ++i) {
    const auto part = [&](std::uint32_t all) {
      return std::max(1U, all / lanes + (i < all % lanes ? 1U : 0U));
    };
    shares[i] = {.reads = part(budget_.reads), .decodes = part(budget_.decodes)};
  }
  return Status();
}

}  // namespace headrace
