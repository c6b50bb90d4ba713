#include "loader/config/budget.h"

#include <algorithm>
#include <string>

#include "base/units.h"

namespace headrace {
namespace {

// The one that the training loop works on, and the next.
constexpr std::uint32_t kBatchesLeast = 2;
// In work or ready, without prefetch=. The memory of batches may be for kUsefulBatchesMax with a
// lower prefetch=, too.
constexpr std::uint32_t kUsefulBatchesMin = 4;
constexpr std::uint32_t kUsefulBatchesMax = 64;

// Rows that wait for reads: so many reads, or as many as hold so many bytes.
constexpr std::uint32_t kReadsLeast = 64;
constexpr std::uint64_t kRowBytesAhead = 16 * kMiB;

// Without memory=, a loader takes at most 1 / kDefaultShare of the machine's memory.
constexpr std::uint64_t kDefaultShare = 4;

// What reads and batches must have, and what they can use.
struct Flow {
  std::uint64_t batch = 0;  // bytes of one
  std::uint64_t batches_max = 0;
  std::uint64_t staging_least = 0;
  std::uint64_t staging_useful = 0;

  [[nodiscard]] std::uint64_t least() const { return staging_least + kBatchesLeast * batch; }
  [[nodiscard]] std::uint64_t useful() const {
    return staging_useful + (batches_max + kBatchesHeld) * batch;
  }
};

Flow FlowOf(const BudgetNeeds& needs) {
  Flow flow;
  flow.batch = std::max<std::uint64_t>(needs.batch_bytes, 1);
  flow.staging_least = std::max(needs.read_bytes_max, 2 * needs.read_bytes);
  // Enough samples ahead to keep the device busy twice over, however small the batches; of rows
  // that are much larger than what is read for them, fewer.
  const std::uint64_t rows = std::clamp<std::uint64_t>(
      kRowBytesAhead * needs.batch_size / flow.batch, std::min(kReadsLeast, needs.reads_in_flight),
      needs.reads_in_flight);
  flow.batches_max = needs.prefetch.value_or(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      2 * rows / needs.batch_size + 2, kUsefulBatchesMin, kUsefulBatchesMax)));
  flow.staging_useful =
      std::max(flow.staging_least, std::uint64_t{2} * needs.reads_in_flight * needs.read_bytes);
  return flow;
}

// Minimum shares, reserved before reads and batches.
struct Shares {
  std::uint64_t scratch = 0;
  std::uint64_t results = 0;
  std::uint64_t decoded = 0;
  std::uint64_t requests = 0;

  [[nodiscard]] std::uint64_t all() const { return scratch + results + decoded + requests; }
};

Shares LeastShares(const BudgetNeeds& needs, const Flow& flow) {
  return {.scratch = needs.scratch_bytes_least,
          .results = needs.results ? flow.batch : 0,
          .decoded = needs.decoded_bytes_least,
          .requests = needs.request_bytes_least};
}

// The shares of `memory` (without tiers) that decodes, results, decoded objects and requests should
// have.
// `residents`: whether the order keeps samples resident.
Shares WantedShares(const BudgetNeeds& needs, const Flow& flow, std::uint64_t memory,
                    bool residents) {
  Shares shares = LeastShares(needs, flow);
  const std::uint64_t scratch = memory / (residents ? kScratchShareOfResidents : kScratchShare);
  if (shares.scratch != 0) {
    shares.scratch = std::max(shares.scratch, std::min(needs.scratch_bytes_max, scratch));
  }
  if (shares.results != 0) {
    shares.results =
        std::max(shares.results, memory / (residents ? kResultsShareOfResidents : kResultsShare));
  }
  const std::uint64_t decoded = memory / (residents ? kDecodedShareOfResidents : kDecodedShare);
  shares.decoded = std::max(shares.decoded, std::min(needs.decoded_bytes_useful, decoded));
  const std::uint64_t requests = memory / (residents ? kRequestShareOfResidents : kRequestShare);
  shares.requests = std::max(shares.requests, std::min(needs.request_bytes_useful, requests));
  return shares;
}

// Wanted shares, lowered towards the minimum where needed: of the memory beyond all minimums, reads
// and batches keep a third, or what is useful to them if that is less.
Shares SharesOf(const BudgetNeeds& needs, const Flow& flow, std::uint64_t memory) {
  const Shares least = LeastShares(needs, flow);
  Shares shares = WantedShares(needs, flow, memory, needs.resident_bytes != 0);
  const std::uint64_t taken = flow.least() + needs.resident_bytes + least.all();
  const std::uint64_t spare = memory - std::min(memory, taken);
  const std::uint64_t most = spare - std::min(spare / 3, flow.useful() - flow.least());
  const std::uint64_t wanted = shares.all() - least.all();
  if (wanted <= most) return shares;
  const double part = static_cast<double>(most) / static_cast<double>(wanted);
  const auto lower = [part](std::uint64_t from, std::uint64_t to) {
    return from + static_cast<std::uint64_t>(part * static_cast<double>(to - from));
  };
  return {.scratch = lower(least.scratch, shares.scratch),
          .results = lower(least.results, shares.results),
          .decoded = lower(least.decoded, shares.decoded),
          .requests = lower(least.requests, shares.requests)};
}

Status CheckLeast(const BudgetNeeds& needs, const Flow& flow) {
  const std::uint64_t resident = needs.resident_bytes;
  const Shares shares = LeastShares(needs, flow);
  const std::uint64_t kept = resident + needs.tier_bytes + shares.decoded;
  const std::uint64_t least =
      flow.least() + kept + shares.scratch + shares.results + shares.requests;
  std::string keeps;
  if (needs.tier_bytes != 0) keeps = "tiers= take " + FormatBytes(needs.tier_bytes);
  if (resident != 0) {
    keeps.append(keeps.empty() ? "" : ", and ").append("the order keeps ");
    keeps.append(FormatBytes(resident)).append(" resident");
  }
  if (shares.decoded != 0) {
    keeps.append(keeps.empty() ? "" : ", and ")
        .append("files or row groups that are decoded as a ");
    keeps.append("whole take ").append(FormatBytes(shares.decoded));
  }
  if (needs.memory_bytes == 0 && kept > needs.memory_limit_bytes) {
    return Status(StatusCode::kInvalidArgument, "memory: " + keeps + ", the machine has " +
                                                    FormatBytes(needs.memory_limit_bytes) +
                                                    "; lower what is kept");
  }
  if (needs.memory_bytes == 0 || needs.memory_bytes >= least) return Status();
  std::string message = "memory " + FormatBytes(needs.memory_bytes) + ": a batch of " +
                        Counted(needs.batch_size, "sample") + " takes " + FormatBytes(flow.batch) +
                        ", two are needed (the one in use and the next), and reads take " +
                        FormatBytes(flow.staging_least);
  if (shares.scratch != 0) message.append(", decoding ").append(FormatBytes(shares.scratch));
  if (shares.results != 0) {
    message.append(", results of workers ").append(FormatBytes(shares.results));
  }
  if (shares.requests != 0) {
    message.append(", requests of the object store ").append(FormatBytes(shares.requests));
  }
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
  const std::uint64_t useful = std::max(kUsefulBatchesMax, needs.prefetch.value_or(0));
  const std::uint64_t batches =
      std::min((memory - budget.staging_bytes) / flow.batch, useful + kBatchesHeld);
  budget.batch_bytes = batches * flow.batch;
  std::uint64_t batches_max = flow.batches_max;
  if (!needs.prefetch.has_value() && batches > kBatchesHeld) {
    batches_max = std::max(batches_max, batches - kBatchesHeld);
  }
  budget.batches_max = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(batches_max, 1, std::max<std::uint64_t>(batches, 1)));
}

// Adds room for stand-ins to that of batches, at most `left`.
void AddStandIns(const BudgetNeeds& needs, std::uint64_t left, Budget& budget) {
  const std::uint64_t batches = budget.batches_max + kBatchesHeld;
  budget.batch_bytes += std::min(left, needs.stand_in_bytes * batches);
}

}  // namespace

std::uint64_t ResidentRoom(const BudgetNeeds& rank, std::uint32_t world_size) {
  if (rank.memory_bytes == 0) {
    const std::uint64_t memory = rank.memory_limit_bytes / kDefaultShare / world_size;
    return memory - memory / 4;
  }
  const Flow flow = FlowOf(rank);
  std::uint64_t memory = rank.memory_bytes - std::min(rank.memory_bytes, rank.tier_bytes);
  memory -= std::min(memory, WantedShares(rank, flow, memory, /*residents=*/true).all());
  return memory - std::min(memory, std::max(flow.least(), std::min(flow.useful(), memory / 4)));
}

double MemoryPerScratch(const BudgetNeeds& needs, const Budget& budget) {
  const auto share =
      static_cast<double>(needs.resident_bytes == 0 ? kScratchShare : kScratchShareOfResidents);
  if (needs.memory_bytes == 0 || budget.scratch_bytes == 0) return share;
  return std::max(
      share, static_cast<double>(needs.memory_bytes) / static_cast<double>(budget.scratch_bytes));
}

Result<Budget> MakeBudget(const BudgetNeeds& needs) {
  const Flow flow = FlowOf(needs);
  HEADRACE_RETURN_IF_ERROR(CheckLeast(needs, flow));
  const std::uint64_t memory_max =
      needs.memory_bytes == 0 ? needs.memory_limit_bytes / kDefaultShare
                              : needs.memory_bytes - std::min(needs.memory_bytes, needs.tier_bytes);
  const Shares shares = SharesOf(needs, flow, memory_max);
  std::uint64_t memory = memory_max - std::min(memory_max, shares.all());
  if (needs.memory_bytes == 0) {
    memory = std::max(flow.least() + needs.resident_bytes,
                      std::min(memory, flow.useful() + needs.resident_bytes));
  }
  Budget budget{.scratch_bytes = shares.scratch,
                .results_bytes = shares.results,
                .decoded_bytes = shares.decoded,
                .request_bytes = shares.requests};
  if (needs.resident_bytes == 0) {
    DivideFlow(needs, flow, memory, budget);
    const std::uint64_t taken = shares.all() + budget.staging_bytes + budget.batch_bytes;
    AddStandIns(needs, memory_max - std::min(memory_max, taken), budget);
    return budget;
  }
  const std::uint64_t flow_bytes =
      std::max(flow.least(), std::min(flow.useful(), memory - needs.resident_bytes));
  DivideFlow(needs, flow, flow_bytes, budget);
  budget.resident_bytes = needs.resident_bytes;
  // Pinned blocks have what is left of `memory`: nothing by default.
  const std::uint64_t for_pinned_blocks = memory - flow_bytes - budget.resident_bytes;
  const std::uint64_t batch_bytes = budget.batch_bytes;
  const std::uint64_t taken = shares.all() + flow_bytes + budget.resident_bytes;
  const std::uint64_t left = memory_max - std::min(memory_max, taken);
  AddStandIns(needs, left, budget);
  budget.pinned_bytes = std::min(
      needs.pinned_bytes, std::min(for_pinned_blocks, left - (budget.batch_bytes - batch_bytes)));
  return budget;
}

}  // namespace headrace
