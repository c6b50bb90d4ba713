#include "plan/placement/tables/room.h"

#include <array>
#include <span>

namespace headrace::placement {

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

}  // namespace headrace::placement
