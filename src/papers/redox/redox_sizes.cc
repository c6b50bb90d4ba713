#include "papers/redox/redox_sizes.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace headrace {
namespace {

constexpr std::uint64_t kChunksMax = 0x7fff'ffff;
// Of chunks of 1, 2, 4, ... samples, counted with the samples of ImageNet-1k on three nodes.
constexpr std::array kLoads = {1.0, 1.36, 1.99, 2.87, 4.19, 6.11, 8.91};
static_assert(std::uint64_t{1} << (kLoads.size() - 1) == kNeighboursMax);

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

double RedoxLoads(std::uint64_t samples) {
  HEADRACE_CHECK(std::has_single_bit(samples) && samples <= kNeighboursMax);
  return kLoads[static_cast<std::size_t>(std::countr_zero(samples))];
}

std::uint64_t ChooseRedoxChunk(const BlockFacts& facts) {
  const std::uint64_t chunks = std::uint64_t{RedoxSizes().chunks_per_virtual} * facts.nodes;
  const std::uint64_t most = std::min(kNeighboursMax, facts.samples / chunks);
  const auto cost = [&](std::uint64_t samples) {
    return RedoxLoads(samples) / facts.read_rate(static_cast<double>(samples * facts.sample_bytes));
  };
  std::uint64_t best = 1;
  for (std::uint64_t samples = 2; samples <= most; samples *= 2) {
    if (cost(samples) < cost(best)) best = samples;
  }
  return best;
}

}  // namespace headrace
