#include "papers/redox/redox_bounds.h"

#include <algorithm>

namespace headrace {
namespace {

// Whatever chunks a virtual chunk has: at each position the largest sample that any chunk of the
// home has there or, with classes, at a position of the same class.
void AddUnitsOfAnyMap(const RedoxLayout& layout, std::vector<std::uint64_t>& sums) {
  const std::uint32_t classes = layout.classes();
  for (std::uint32_t home = 0; home < sums.size(); ++home) {
    std::vector<std::uint32_t> largest;
    std::uint64_t virtual_count = 0;
    std::uint32_t width = 0;
    for (const RedoxLayout::Virtual& each : layout.virtual_chunks()) {
      if (each.home != home) continue;
      ++virtual_count;
      width = std::max(width, each.width);
      for (std::uint32_t member = 0; member < each.chunk_count; ++member) {
        const BlockMap::Block block = layout.blocks().block(layout.chunk(each, member));
        for (std::uint32_t o = 0; o < block.count; ++o) {
          const std::uint32_t at = classes == 0 ? o : o % classes;
          if (at >= largest.size()) largest.resize(at + 1);
          largest[at] =
              std::max(largest[at], layout.units(static_cast<std::uint32_t>(Raw(block.first)) + o));
        }
      }
    }
    std::uint64_t units_of_one = 0;
    for (std::uint32_t o = 0; o < width; ++o) {
      units_of_one += largest[classes == 0 ? o : o % classes];
    }
    sums[home] += virtual_count * units_of_one;
  }
}

}  // namespace

std::vector<std::uint64_t> UnitsOfHomes(const RedoxLayout& layout,
                                        const RedoxOrderOptions& options) {
  const auto slots = layout.slots();
  const auto slot_of = layout.slots_of_samples();
  std::vector<std::uint64_t> sums(options.nodes, 0);
  std::vector<std::uint64_t> all(options.nodes, 0);
  for (std::uint32_t sample = 0; sample < layout.sample_count(); ++sample) {
    all[slots[slot_of[sample]].home] += layout.units(sample);
  }
  if (options.remap) {
    AddUnitsOfAnyMap(layout, sums);
  } else {
    std::vector<std::uint32_t> largest(slots.size(), 0);
    for (std::uint32_t sample = 0; sample < layout.sample_count(); ++sample) {
      std::uint32_t& most = largest[slot_of[sample]];
      most = std::max(most, layout.units(sample));
    }
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
      sums[slots[slot].home] += std::uint64_t{largest[slot]} * slots[slot].places;
    }
  }
  for (std::uint32_t home = 0; home < options.nodes; ++home) {
    sums[home] = std::min(sums[home], all[home]);
  }
  return sums;
}

}  // namespace headrace
