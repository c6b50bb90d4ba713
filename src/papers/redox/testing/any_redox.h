#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "papers/redox/redox_order.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {

// A random home for each block.
inline SampleTable AnyHomes(const BlockMap& blocks, std::uint32_t nodes, Prng& prng) {
  std::vector<std::uint32_t> homes;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    homes.insert(homes.end(), blocks.block(i).count, static_cast<std::uint32_t>(prng.Below(nodes)));
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
}

// A random job and parameters of every kind: sizes that divide nothing, one sample, one chunk.
inline RedoxOrderOptions AnyRedox(std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kOrder, 99);
  const auto one_of = [&](const std::vector<std::uint64_t>& choices) {
    return choices[prng.Below(choices.size())];
  };
  const auto small = [&](const std::vector<std::uint64_t>& choices) {
    return static_cast<std::uint32_t>(one_of(choices));
  };
  const std::uint64_t count = one_of({1, 2, 7, 16, 53, 97, 128, 211, 500});
  RedoxOrderOptions options;
  options.job = {.sample_count = count,
                 .batch_size = prng.Below(9) + 1,
                 .world_size = small({1, 1, 2, 3, 4, 16}),
                 .seed = seed,
                 .shuffle = prng.Below(8) != 0,
                 .drop_last = prng.Below(2) != 0,
                 .epochs = 2};
  if (count < options.job.batch_size * options.job.world_size) options.job.drop_last = false;
  std::vector<std::uint32_t> blocks;
  for (std::uint64_t left = count; left > 0; left -= blocks.back()) {
    blocks.push_back(
        static_cast<std::uint32_t>(std::min(left, prng.Below(one_of({1, 8, 90})) + 1)));
  }
  std::vector<std::uint32_t> units(count);
  for (std::uint32_t& each : units) each = static_cast<std::uint32_t>(prng.Below(9)) + 1;
  options.blocks = std::make_shared<OddBlocks>(blocks, units);
  options.chunks_per_virtual = small({1, 2, 3, 10});
  options.mapping = RedoxOrderOptions::Mapping{static_cast<std::uint8_t>(prng.Below(2))};
  options.refill = RedoxOrderOptions::Refill{static_cast<std::uint8_t>(prng.Below(2))};
  options.ties = RedoxOrderOptions::Ties{static_cast<std::uint8_t>(prng.Below(2))};
  options.slot_classes = small({0, 0, 1, 2, 7, 64});
  options.nodes = small({1, 2, 3, 5});
  options.prefetch = small({0, 1, 2, 5, 30, 1000});
  options.remote_units = one_of({0, 9, 40});
  options.memory_units = one_of({0, 0, 9, 14, 60});
  options.read = RedoxOrderOptions::Reading{static_cast<std::uint8_t>(prng.Below(2))};
  options.remap = prng.Below(3) == 0;
  options.arrival = prng.Below(3) == 0;
  if (prng.Below(3) == 0) options.homes = AnyHomes(*options.blocks, options.nodes, prng);
  return options;
}

}  // namespace headrace
