#include "runtime/budget.h"

#include <algorithm>
#include <string>

#include "base/units.h"

namespace headrace {
namespace {

// The one that the training loop works on, and the next.
constexpr std::uint32_t kBatchesLeast = 2;
constexpr std::uint32_t kBatchesAhead = 4;
constexpr std::uint32_t kBatchesAheadMax = 64;

}  // namespace

Result<Budget> MakeBudget(const BudgetNeeds& needs) {
  const std::uint64_t batch = std::max<std::uint64_t>(needs.batch_bytes, 1);
  const std::uint64_t staging_least = std::max(needs.read_bytes_max, 2 * needs.read_bytes);
  const std::uint64_t least = staging_least + kBatchesLeast * batch;
  if (needs.memory_bytes != 0 && needs.memory_bytes < least) {
    return Status(StatusCode::kInvalidArgument,
                  "memory " + FormatBytes(needs.memory_bytes) + ": a batch of " +
                      std::to_string(needs.batch_size) + " samples takes " + FormatBytes(batch) +
                      ", two are needed (the one in use and the next), and reads take " +
                      FormatBytes(staging_least) + "; raise memory= to at least " +
                      FormatBytes(RoundUp(least, kMiB)) + " or lower batch_size=");
  }
  // Enough samples ahead to keep the device busy twice over, however small the batches.
  const std::uint64_t ahead_for_reads =
      std::uint64_t{2} * needs.reads_in_flight / needs.batch_size + 2;
  std::uint64_t ahead =
      needs.batches_ahead != 0
          ? needs.batches_ahead
          : std::clamp<std::uint64_t>(ahead_for_reads, kBatchesAhead, kBatchesAheadMax);
  const std::uint64_t staging_useful =
      std::max(staging_least, std::uint64_t{2} * needs.reads_in_flight * needs.read_bytes);

  std::uint64_t memory = needs.memory_bytes;
  if (memory == 0) {
    memory = std::max(least, std::min(needs.memory_limit_bytes / 4,
                                      staging_useful + (ahead + kBatchesHeld) * batch));
  }
  Budget budget;
  budget.staging_bytes = std::clamp(memory / 4, staging_least,
                                    std::min(staging_useful, memory - kBatchesLeast * batch));
  const std::uint64_t batches = std::min<std::uint64_t>((memory - budget.staging_bytes) / batch,
                                                        kBatchesAheadMax + kBatchesHeld);
  budget.batch_bytes = batches * batch;
  if (needs.batches_ahead == 0 && batches > kBatchesHeld)
    ahead = std::max(ahead, batches - kBatchesHeld);
  budget.batches_max = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(ahead, 1, std::max<std::uint64_t>(batches, 1)));
  return budget;
}

}  // namespace headrace
