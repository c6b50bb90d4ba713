#include "runtime/job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/engine_options.h"
#include "index/index.h"
#include "runtime/machine.h"
#include "runtime/planner.h"
#include "runtime/schema.h"

namespace headrace {
namespace {

// Reads of whole blocks are large: this many keep any device busy.
constexpr std::uint32_t kBlockReadsInFlight = 16;

constexpr int kThreadsMax = 1024;

}  // namespace

Result<Job> SettleJob(const std::shared_ptr<const Index>& index, LoaderOptions options) {
  options.job.sample_count = index->sample_count();
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(options.job));
  HEADRACE_ASSIGN_OR_RETURN(std::vector<BatchField> schema, MakeSchema(*index, options.fields));
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return Status(StatusCode::kInvalidArgument, "threads: got " + std::to_string(options.threads) +
                                                    ", must be in [0, " +
                                                    std::to_string(kThreadsMax) + "]");
  }
  if (!options.tiers.tiers.empty() && options.io == IoChoice::kSynthetic) {
    return Status(StatusCode::kInvalidArgument,
                  "tiers with io='synthetic': nothing is read that could be kept");
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
  BudgetNeeds needs{.memory_bytes = options.memory_bytes,
                    .memory_limit_bytes = MemoryLimitBytes(),
                    .batch_bytes = BufferPool::ChargedBytes(batch_bytes) * ranks,
                    .batch_size = rows * ranks,
                    .read_bytes = BufferPool::ChargedBytes(read_bytes + kWideningMax),
                    .read_bytes_max = BufferPool::ChargedBytes(read_bytes_max + kWideningMax),
                    .batches_ahead = options.batches_ahead,
                    .reads_in_flight = EngineOptions().reads_in_flight_max,
                    .tier_bytes = options.tiers.memory_bytes()};
  if (planner->reads_blocks()) needs.reads_in_flight = kBlockReadsInFlight;
  HEADRACE_RETURN_IF_ERROR(planner->AddNeeds(needs));
  if (!options.tiers.tiers.empty()) needs.pinned_bytes = 0;  // A tier does that, and more.
  HEADRACE_ASSIGN_OR_RETURN(const Budget budget, MakeBudget(needs));
  HEADRACE_RETURN_IF_ERROR(planner->Settle(budget));
  return Job{.options = std::move(options),
             .schema = std::move(schema),
             .steps_per_epoch = steps,
             .planner = planner,
             .budget = budget};
}

}  // namespace headrace
