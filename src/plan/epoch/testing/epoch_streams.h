#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/epoch/epoch_order.h"
#include "plan/order_factory.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {

// What tests of the `epoch` order have in common, with one home or several.

using Ids = std::vector<std::uint64_t>;

// Blocks of `counts` samples; sample s takes 1 + s * step mod wheel units.
inline std::shared_ptr<const OddBlocks> WheelBlocks(const std::vector<std::uint32_t>& counts,
                                                    std::uint64_t step, std::uint64_t wheel) {
  std::vector<std::uint32_t> units;
  for (const std::uint32_t count : counts) {
    for (std::uint32_t i = 0; i < count; ++i) {
      units.push_back(static_cast<std::uint32_t>(1 + units.size() * step % wheel));
    }
  }
  return std::make_shared<OddBlocks>(counts, std::move(units));
}

inline std::uint64_t GlobalBatch(const EpochOrderOptions& options) {
  return options.job.batch_size * options.job.world_size;
}

// All steps of a stream.
inline std::vector<Step> Pull(const EpochOrderOptions& options, Position start = {},
                              std::map<std::string, double>* counters = nullptr) {
  auto order = MakeEpochOrder(options, start);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  if (!order.ok()) return steps;
  while (auto step = order.value()->Next()) steps.push_back(*std::move(step));
  if (counters != nullptr) *counters = order.value()->counters();
  return steps;
}

// As the factory reports it for a stream. `table`: the homes that were given.
inline std::uint64_t ResidentUnits(const EpochOrderOptions& options,
                                   const SampleTable& table = nullptr) {
  const OrderRequest request{
      .job = options.job,
      .parameters = {{"pool_bytes",
                      static_cast<std::int64_t>(options.pool_units * options.blocks->unit_bytes())},
                     {"pools", std::int64_t{options.pools}},
                     {"homes", std::int64_t{options.home_count()}}},
      .blocks = options.blocks,
      .homes = table};
  const auto units = EpochOrderFactory().ResidentUnits(request);
  EXPECT_TRUE(units.ok()) << units.status().ToString();
  return units.ok() ? units.value() : 0;
}

inline std::uint64_t HashOf(const Ids& ids) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
  for (const std::uint64_t id : ids) hash = (hash ^ id) * 0x100'0000'01B3;
  return hash;
}

// Of all ids of one epoch, rank after rank: the first of them and the hash.
inline void ExpectFrozen(EpochOrderOptions options, std::uint64_t epoch, const Ids& first,
                         std::uint64_t hash) {
  Ids ids;
  for (options.job.rank = 0; options.job.rank < options.job.world_size; ++options.job.rank) {
    for (const Step& step : Pull(options, {.epoch = epoch})) {
      if (step.epoch != epoch) break;
      for (const Delivery& delivery : step.deliveries) ids.push_back(Raw(delivery.sample));
    }
  }
  EXPECT_EQ(HashOf(ids), hash);
  ids.resize(first.size());
  EXPECT_EQ(ids, first);
}

}  // namespace headrace
