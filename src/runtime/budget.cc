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

// What reads and batches must have, and what they can use.
struct Flow {
  std::uint64_t batch = 0;  // bytes of one
  std::uint64_t ahead = 0;  // batches
  std::uint64_t staging_least = 0;
  std::uint64_t staging_useful = 0;

  [[nodiscard]] std::uint64_t least() const { return staging_least + kBatchesLeast * batch; }
  [[nodiscard]] std::uint64_t useful() const {
    return staging_useful + (ahead + kBatchesHeld) * batch;
  }
};

Flow FlowOf(const BudgetNeeds& needs) {
  Flow flow;
  flow.batch = std::max<std::uint64_t>(needs.batch_bytes, 1);
  flow.staging_least = std::max(needs.read_bytes_max, 2 * needs.read_bytes);
  // Enough samples ahead to keep the device busy twice over, however small the batches.
  const std::uint64_t ahead_for_reads =
      std::uint64_t{2} * needs.reads_in_flight / needs.batch_size + 2;
  flow.ahead = needs.batches_ahead != 0
                   ? needs.batches_ahead
                   : std::clamp<std::uint64_t>(ahead_for_reads, kBatchesAhead, kBatchesAheadMax);
  flow.staging_useful =
      std::max(flow.staging_least, std::uint64_t{2} * needs.reads_in_flight * needs.read_bytes);
  return flow;
}

Status CheckLeast(const BudgetNeeds& needs, const Flow& flow) {
  const std::uint64_t resident = needs.resident_fixed ? needs.resident_bytes : 0;
  const std::uint64_t kept = resident + needs.tier_bytes;
  const std::uint64_t least = flow.least() + kept;
  std::string keeps;
  if (needs.tier_bytes != 0) keeps = "tiers= take " + FormatBytes(needs.tier_bytes);
  if (resident != 0) {
    keeps.append(keeps.empty() ? "" : ", and ").append("the order keeps ");
    keeps.append(FormatBytes(resident)).append(" resident");
  }
  if (needs.memory_bytes == 0 && kept > needs.memory_limit_bytes) {
    return Status(StatusCode::kInvalidArgument, "memory: " + keeps + ", the machine has " +
                                                    FormatBytes(needs.memory_limit_bytes) +
                                                    "; lower what is kept");
  }
  if (needs.memory_bytes == 0 || needs.memory_bytes >= least) return Status();
  std::string message = "memory " + FormatBytes(needs.memory_bytes) + ": a batch of " +
                        std::to_string(needs.batch_size) + " samples takes " +
                        FormatBytes(flow.batch) +
                        ", two are needed (the one in use and the next), and reads take " +
                        FormatBytes(flow.staging_least);
  if (!keeps.empty()) message.append(", and ").append(keeps);
  message.append("; raise memory= to at least ")
      .append(FormatBytes(RoundUp(least, kMiB)))
      .append(!keeps.empty() ? ", or lower batch_size= or what is kept" : " or lower batch_size=");
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// Gives `memory` to reads and batches.
void DivideFlow(const BudgetNeeds& needs, const Flow& flow, std::uint64_t memory, Budget& budget) {
  budget.staging_bytes =
      std::clamp(memory / 4, flow.staging_least,
                 std::min(flow.staging_useful, memory - kBatchesLeast * flow.batch));
  const std::uint64_t batches = std::min<std::uint64_t>(
      (memory - budget.staging_bytes) / flow.batch, kBatchesAheadMax + kBatchesHeld);
  budget.batch_bytes = batches * flow.batch;
  std::uint64_t ahead = flow.ahead;
  if (needs.batches_ahead == 0 && batches > kBatchesHeld)
    ahead = std::max(ahead, batches - kBatchesHeld);
  budget.batches_max = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(ahead, 1, std::max<std::uint64_t>(batches, 1)));
}

}  // namespace

Result<Budget> MakeBudget(const BudgetNeeds& needs) {
  const Flow flow = FlowOf(needs);
  HEADRACE_RETURN_IF_ERROR(CheckLeast(needs, flow));
  const std::uint64_t resident_least = needs.resident_fixed ? needs.resident_bytes : 0;
  std::uint64_t memory = needs.memory_bytes - std::min(needs.memory_bytes, needs.tier_bytes);
  if (needs.memory_bytes == 0) {
    memory = std::max(flow.least() + resident_least,
                      std::min(needs.memory_limit_bytes / 4, flow.useful() + needs.resident_bytes));
  }
  Budget budget;
  if (needs.resident_bytes == 0) {
    DivideFlow(needs, flow, memory, budget);
    return budget;
  }
  const std::uint64_t flow_max = needs.resident_fixed ? memory - resident_least : memory / 4;
  const std::uint64_t flow_bytes = std::max(flow.least(), std::min(flow.useful(), flow_max));
  DivideFlow(needs, flow, flow_bytes, budget);
  budget.resident_bytes = std::min(needs.resident_bytes, memory - flow_bytes);
  budget.pinned_bytes = std::min(needs.pinned_bytes, memory - flow_bytes - budget.resident_bytes);
  return budget;
}

}  // namespace headrace
