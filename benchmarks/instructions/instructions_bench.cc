// What the engine executes for a sample, counted: instructions_bench CASE
//
// Runs one fixed case over data in memory, all on one thread and without a clock, so that two runs
// of a build execute the same instructions. instructions.py runs it under callgrind, which counts
// inside MeasuredBatches() only: by then the engine has read ahead and tiers are full. Prints a
// line of JSON: how many samples were delivered meanwhile, and by how many reads.
//
// Cases: exact, epoch, tiers, epoch_tiers, lanes; each with samples of 4 KB and 100 KB, as in
// `lanes/100`.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine_driver.h"
#include "plan/block_map.h"
#include "plan/epoch/epoch_order.h"
#include "plan/exact_order.h"
#include "plan/placement/placement.h"
#include "plan/placement/uses.h"

namespace headrace {
namespace {

struct Case {
  std::uint64_t samples = 0;  // of the dataset
  std::uint64_t batch_size = 0;
  std::uint64_t block_samples = 0;  // of the order `epoch`; 0: order `exact`
  std::uint32_t lanes = 1;
  bool tier = false;           // of half the dataset
  std::uint64_t warm_up = 0;   // batches of a lane
  std::uint64_t measured = 0;  // the same
};

std::optional<std::pair<Case, std::uint64_t>> FindCase(std::string_view name) {
  const bool large = name.ends_with("/100");
  if (!large && !name.ends_with("/4")) return std::nullopt;
  const std::uint64_t bytes = large ? 100'000 : 4096;
  const std::uint64_t batch = large ? 16 : 64;
  const std::string_view kind = name.substr(0, name.find('/'));
  const std::uint64_t many = 128 * batch;  // An epoch of 128 batches.
  const std::uint64_t few = 32 * batch;
  Case found{.samples = many, .batch_size = batch, .warm_up = 16, .measured = 64};
  if (kind == "exact") return std::pair(found, bytes);
  if (kind == "lanes") {
    found.lanes = 4;
    found.batch_size /= 4;
    return std::pair(found, bytes);
  }
  found.block_samples = kind.starts_with("epoch") ? batch : 0;
  found.warm_up = 40;  // The pool is full; the first fill is over.
  if (kind == "epoch") return std::pair(found, bytes);
  if (kind != "tiers" && kind != "epoch_tiers") return std::nullopt;
  found.samples = few;
  found.tier = true;
  found.warm_up = 64;  // Two epochs.
  return std::pair(found, bytes);
}

std::vector<Step> MakeSteps(const Case& of) {
  const std::uint64_t batches = of.warm_up + of.measured + 64;
  const std::uint64_t in_epoch = of.samples / (of.batch_size * of.lanes);
  const OrderOptions job{.sample_count = of.samples,
                         .batch_size = of.batch_size,
                         .world_size = of.lanes,
                         .ranks = of.lanes,
                         .seed = 13,
                         .epochs = (batches - 1) / in_epoch + 1};
  auto order = of.block_samples == 0
                   ? MakeExactOrder(job, {})
                   : MakeEpochOrder({.job = job,
                                     .blocks = MakeUniformBlocks(of.samples, of.block_samples),
                                     .pool_units = of.samples / 4},
                                    {});
  std::vector<Step> steps;
  while (std::optional<Step> step = order.value()->Next()) steps.push_back(*std::move(step));
  return steps;
}

// Samples that block reads keep at once, above what the planner counts by a step at most.
std::uint64_t ResidentSamples(const std::vector<Step>& steps) {
  std::uint64_t resident = 0;
  std::uint64_t most = 0;
  for (const Step& step : steps) {
    for (const BlockRead& read : step.reads) {
      resident += read.kept.empty() ? read.count : read.kept.size();
    }
    most = std::max(most, resident);
    for (const Delivery& delivery : step.deliveries) {
      resident -= delivery.block_read != kNoBlockRead;
    }
    resident -= step.releases.size();
  }
  return most;
}

// What the steps use, of one node.
class UsesOfSteps final : public UseStream {
 public:
  UsesOfSteps(const std::vector<Step>& steps, std::uint64_t block_samples)
      : steps_(steps), block_samples_(block_samples) {}

  bool Next(StepUses& uses) override {
    if (next_ == steps_.size()) return false;
    const Step& step = steps_[next_++];
    uses = {.at = {.epoch = step.epoch, .step = step.step}, .ends_epoch = step.ends_epoch};
    for (const BlockRead& read : step.reads) Add(read.first, uses);
    for (const Delivery& delivery : step.deliveries) {
      if (delivery.block_read == kNoBlockRead) Add(delivery.sample, uses);
    }
    uses.node_ends = {uses.blocks.size()};
    return true;
  }

 private:
  void Add(SampleId sample, StepUses& uses) const {
    uses.blocks.push_back(static_cast<std::uint32_t>(Raw(sample) / block_samples_));
  }

  const std::vector<Step>& steps_;
  const std::uint64_t block_samples_;
  std::size_t next_ = 0;
};

// With the placement `belady` samples come and go all the time.
void AddTier(const Case& of, EngineWork& work) {
  const std::uint64_t block_samples = std::max<std::uint64_t>(of.block_samples, 1);
  work.tier_samples = of.samples / 2;
  work.tier_blocks = MakeUniformBlocks(of.samples, block_samples);
  PlacementRequest request{
      .blocks = work.tier_blocks,
      .capacity_units = {{work.tier_samples}},
      .held = {{{}}},
      .uses = [&]() -> Result<std::unique_ptr<UseStream>> {
        return std::unique_ptr<UseStream>(std::make_unique<UsesOfSteps>(work.steps, block_samples));
      }};
  const auto placement = Placements().Get("belady").value()->Make(std::move(request)).value();
  while (std::optional<PlacedStep> step = placement->Next()) {
    work.placed.push_back(*std::move(step));
  }
}

std::uint64_t Delivered(const EngineStats& stats) {
  std::uint64_t samples = 0;
  for (const LaneStats& lane : stats.lanes) samples += lane.samples;
  return samples;
}

}  // namespace

// Of all that this program executes only what happens in here is counted.
[[gnu::noinline]] void MeasuredBatches(EngineDriver& driver, std::uint64_t batches) {
  driver.Take(batches);
}

namespace {

int Main(int argc, char** argv) {
  const auto found = argc == 2 ? FindCase(argv[1]) : std::nullopt;
  if (!found.has_value()) {
    std::fprintf(stderr, "usage: instructions_bench exact|epoch|tiers|epoch_tiers|lanes/4|100\n");
    return 2;
  }
  const auto& [of, sample_bytes] = *found;
  EngineWork work{.sample_bytes = sample_bytes,
                  .samples = of.samples,
                  .batch_bytes = of.batch_size * sample_bytes,
                  .lanes = of.lanes,
                  .steps = MakeSteps(of)};
  if (of.block_samples > 0) work.resident_units = ResidentSamples(work.steps);
  if (of.tier) AddTier(of, work);
  EngineDriver driver(std::move(work));
  driver.Take(of.warm_up);
  const EngineStats before = driver.stats();
  MeasuredBatches(driver, of.measured);
  const EngineStats after = driver.stats();
  std::printf(
      "{\"case\": \"%s\", \"samples\": %llu, \"handed_over\": %llu, \"reads\": %llu, "
      "\"from_tier\": %llu}\n",
      argv[1], static_cast<unsigned long long>(of.measured * of.batch_size * of.lanes),
      static_cast<unsigned long long>(Delivered(after) - Delivered(before)),
      static_cast<unsigned long long>(after.reads - before.reads),
      static_cast<unsigned long long>(
          of.tier ? after.tiers.uses[0].samples - before.tiers.uses[0].samples : 0));
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
