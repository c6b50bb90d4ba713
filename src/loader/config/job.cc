#include "loader/config/job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/units.h"
#include "engine/engine_options.h"
#include "index/index.h"
#include "loader/config/planner.h"
#include "loader/config/schema.h"
#include "loader/machine/machine.h"

namespace headrace {
namespace {

// Reads of whole blocks are large: this many keep any device busy.
constexpr std::uint32_t kBlockReadsInFlight = 16;

constexpr int kThreadsMax = 1024;

// Least scratch budget of a rank: enough for images of moderate size.
constexpr std::uint64_t kScratchBytesLeast = 512 * kKiB;
// Largest useful scratch budget, in decodes of the largest image: half of it is reserved for
// threads.
constexpr std::uint64_t kScratchOfLargest = 2;

// Largest useful scratch budget of one rank; 0 if it decodes nothing.
std::uint64_t ScratchBytesMax(const std::vector<BatchField>& schema) {
  std::uint64_t bytes = 0;
  for (const BatchField& field : schema) {
    if (field.is_inline()) continue;
    bytes = std::max(bytes, kScratchOfLargest * field.codec->ScratchBytesMax());
  }
  return bytes;
}

Status CheckThreads(int threads) {
  if (threads >= 0 && threads <= kThreadsMax) return Status();
  return Status(StatusCode::kInvalidArgument, "threads: got " + std::to_string(threads) +
                                                  ", must be in [0, " +
                                                  std::to_string(kThreadsMax) + "]");
}

}  // namespace

Result<Job> SettleJob(const std::shared_ptr<const Index>& index, LoaderOptions options) {
  options.job.sample_count = index->sample_count();
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(options.job));
  HEADRACE_ASSIGN_OR_RETURN(std::vector<BatchField> schema, MakeSchema(*index, options.fields));
  HEADRACE_RETURN_IF_ERROR(CheckThreads(options.threads));
  HEADRACE_RETURN_IF_ERROR(CheckStoreName(options.io));
  if (!options.tiers.tiers.empty() && !ReadsStorage(options.io)) {
    return Status(StatusCode::kInvalidArgument,
                  "tiers with io='" + options.io + "': nothing is read that could be kept");
  }
  // What is given is one rank's share of the node.
  const std::uint32_t ranks = options.job.ranks;
  options.threads =
      options.threads == 0
          ? UsableCores()
          : static_cast<int>(std::min<std::uint64_t>(
                std::uint64_t{ranks} * static_cast<std::uint64_t>(options.threads), kThreadsMax));
  options.memory_bytes *= ranks;
  for (TierSpec& tier : options.tiers.tiers) tier.capacity_bytes *= ranks;
  if (options.model.has_value()) HEADRACE_RETURN_IF_ERROR(CheckModel(*options.model));
  HEADRACE_ASSIGN_OR_RETURN(Planner made, Planner::Make(index, options.job, options.order));
  const auto planner = std::make_shared<Planner>(std::move(made));

  const auto is_inline = [](const BatchField& field) { return field.is_inline(); };
  if (std::all_of(schema.begin(), schema.end(), is_inline)) {
    options.tiers.tiers.clear();  // All is in the index: there is nothing to keep.
  }
  const SampleSizes sizes = LookAtSizes(*index, schema);
  const std::uint64_t rows = std::min(options.job.batch_size, index->sample_count());
  const std::uint64_t batch_bytes = FixedBatchBytes(schema, rows) + sizes.row_bytes_mean * rows;
  std::uint64_t read_bytes = sizes.read_bytes_mean;
  if (planner->reads_blocks()) {
    read_bytes = std::max(
        read_bytes, std::min(planner->mean_block_bytes(), EngineOptions().block_read_bytes_max));
  }
  const std::uint64_t read_bytes_max = std::max(sizes.read_bytes_max, read_bytes);
  const std::uint64_t scratch_bytes_max = ScratchBytesMax(schema);
  const std::uint64_t stand_in_bytes =
      options.on_error == OnError::kSubstitute ? sizes.stand_in_bytes_max : 0;
  const auto needs_of = [&](std::uint32_t count) {
    return BudgetNeeds{
        .memory_bytes = options.memory_bytes / ranks * count,
        .memory_limit_bytes = MemoryLimitBytes(),
        .batch_bytes = BufferPool::ChargedBytes(batch_bytes) * count,
        .batch_size = rows * count,
        .read_bytes = BufferPool::ChargedBytes(read_bytes + kWideningMax),
        .read_bytes_max = BufferPool::ChargedBytes(read_bytes_max + kWideningMax),
        .batches_ahead = options.batches_ahead,
        .reads_in_flight =
            planner->reads_blocks() ? kBlockReadsInFlight : EngineOptions().reads_in_flight_max,
        .stand_in_bytes = stand_in_bytes * count,
        .tier_bytes = options.tiers.memory_bytes() / ranks * count,
        .scratch_bytes_least = scratch_bytes_max == 0 ? 0 : kScratchBytesLeast * count,
        .scratch_bytes_max = scratch_bytes_max * count,
        .results = options.worker_results};
  };
  HEADRACE_RETURN_IF_ERROR(planner->Settle(ResidentRoom(needs_of(1), options.job.world_size)));
  BudgetNeeds needs = needs_of(ranks);
  planner->AddNeeds(needs);
  if (!options.tiers.tiers.empty()) needs.pinned_bytes = 0;  // A tier does that, and more.
  HEADRACE_ASSIGN_OR_RETURN(const Budget budget, MakeBudget(needs));
  return Job{.options = std::move(options),
             .schema = std::move(schema),
             .steps_per_epoch = steps,
             .planner = planner,
             .budget = budget,
             .scratch_share = MemoryPerScratch(needs, budget) / ranks};
}

// The executor's threads may decode at once, and each rank's consumer, which helps.
std::shared_ptr<ScratchBudget> MakeScratch(const Budget& budget, const LoaderOptions& options,
                                           double scratch_share) {
  if (budget.scratch_bytes == 0) return nullptr;
  return ScratchBudget::Make(
      {.capacity_bytes = budget.scratch_bytes,
       .threads = static_cast<std::uint32_t>(options.threads) + options.job.ranks,
       .memory_bytes_per_byte = scratch_share});
}

}  // namespace headrace
