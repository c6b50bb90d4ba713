#include "plan/home_tables.h"

#include <memory>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"
#include "headrace/index.h"
#include "index/homes/homes.h"

namespace headrace {

Result<SampleTable> HomeTable(const Index& index) {
  HEADRACE_ASSIGN_OR_RETURN(const Homes homes, HomesOf(index));
  if (homes.count == 1) return SampleTable();
  HEADRACE_ASSIGN_OR_RETURN(std::vector<std::uint32_t> table, HomesOfSamples(index, homes));
  return SampleTable(std::make_shared<const std::vector<std::uint32_t>>(std::move(table)));
}

Result<std::vector<std::uint32_t>> HomesOfBlocks(const BlockMap& blocks,
                                                 std::span<const std::uint32_t> homes) {
  if (homes.size() != blocks.sample_count()) {
    return InvalidArgument("homes: got {} numbers for {}; give one for each", homes.size(),
                           Counted(blocks.sample_count(), "sample"));
  }
  std::vector<std::uint32_t> of_blocks(blocks.block_count());
  for (std::uint64_t position = 0; position < of_blocks.size(); ++position) {
    const BlockMap::Block block = blocks.block(position);
    const std::uint32_t home = homes[Raw(block.first)];
    for (const std::uint32_t other : homes.subspan(Raw(block.first), block.count)) {
      if (other == home) continue;
      return InvalidArgument(
          "homes: block {} (samples {} to {}) has samples of homes {} and {}, but must "
          "have one",
          position, Raw(block.first), Raw(block.first) + block.count - 1, home, other);
    }
    of_blocks[position] = home;
  }
  return of_blocks;
}

}  // namespace headrace
