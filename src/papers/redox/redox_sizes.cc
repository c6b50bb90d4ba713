#include "papers/redox/redox_sizes.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr std::uint64_t kChunksMax = 0x7fff'ffff;

}  // namespace

RedoxSizes ChooseRedoxSizes(const RedoxRoom& room) {
  RedoxSizes sizes;
  if (!room.room_units.has_value()) return sizes;
  if (room.sends_along) sizes.remote_units = std::max<std::uint64_t>(1, *room.room_units / 10);
  const std::uint64_t slots = *room.room_units - std::min(*room.room_units, sizes.remote_units);
  const std::uint64_t of_node = (room.total_units + room.nodes - 1) / room.nodes;
  // Slots of S chunks a virtual one take one S-th.
  const std::uint64_t needed = slots == 0 ? room.block_count : (of_node + slots - 1) / slots;
  const std::uint64_t chunks = std::min({needed, room.block_count, kChunksMax});
  sizes.chunks_per_virtual =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(sizes.chunks_per_virtual, chunks));
  return sizes;
}

std::uint64_t ChooseRedoxChunk(const BlockFacts& facts) {
  const std::uint64_t chunks = std::uint64_t{RedoxSizes().chunks_per_virtual} * facts.nodes;
  const std::uint64_t enough = (facts.enough_bytes + facts.sample_bytes - 1) / facts.sample_bytes;
  return std::max<std::uint64_t>(1, std::min({enough, kNeighboursMax, facts.samples / chunks}));
}

}  // namespace headrace
