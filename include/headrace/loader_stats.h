#pragma once

// What a loader reports: LoaderStats, what it did so far; StepTime, when each of the newest batches
// was made; PlannedRow, where a row comes from. docs/observe.md explains the figures. Plain
// structs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/ids.h"
#include "headrace/members.h"
#include "headrace/part_stats.h"

namespace headrace {

// Where one row of a step comes from.
struct PlannedRow {
  std::uint32_t slot = 0;
  SampleId sample{};
  std::string field;
  std::string source;  // "storage"; "block" where it comes with one; "index" for inline values;
                       // the name of the tier that the plan takes it from
  std::string actual;  // where it did come from; empty: it was not delivered, or long ago
  std::string object;  // its path
  ByteRange range;     // of the object
};
HEADRACE_MEMBERS(PlannedRow, slot, sample, field, source, actual, object, range)

// What a rank's consumer took of one epoch, over all runs.
struct EpochTaken {
  std::uint64_t epoch = 0;
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  // Where there are tiers: samples by where they came from; else all from storage. Those that come
  // with a block count as from storage: it may have come in parts from several sources, which only
  // TierCounts has.
  std::uint64_t from_storage = 0;
  std::uint64_t from_nodes = 0;
  std::vector<std::uint64_t> from_tiers;  // fastest first; may be shorter than the tiers
  StallTimes stall_ns{};                  // waited for its batches, by StallCause
  // The sum of SampleSum() over the samples, modulo 2^64: the same in any order, on any ranks.
  std::uint64_t sample_sum = 0;
  // Whether each batch was that of the step after the one before: none was left out, or taken again
  // after a state was loaded.
  bool in_sequence = true;
  std::uint64_t next_step = 0;  // after the newest batch
};
HEADRACE_MEMBERS(EpochTaken, epoch, batches, samples, from_storage, from_nodes, from_tiers,
                 stall_ns, sample_sum, in_sequence, next_step)
// The most epochs that statistics list.
inline constexpr std::size_t kEpochsListed = 64;

// What a rank's consumer took. The same in every run of a plan: the engine's own counts are ahead
// of it by what is ready.
struct Delivered {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t substituted = 0;            // samples replaced
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
  std::vector<EpochTaken> epochs;           // ascending: the least, and the newest
};
HEADRACE_MEMBERS(Delivered, batches, samples, substituted, substitutions, epochs)

// One tier: what it is, and what it did.
struct NamedTierStats {
  std::string name;
  TierStats stats;
};
HEADRACE_MEMBERS(NamedTierStats, name, stats)

// How the ranks of a node shared it.
struct ScheduleStats {
  std::string name;                  // of the policy, or the path of a schedule
  std::uint64_t stragglers = 0;      // steps for which a lane was predicted to be late
  std::uint64_t corrections = 0;     // times that threads were moved between lanes
  std::uint64_t planned_steps = 0;   // whose shares were those of a schedule
  std::uint32_t decode_threads = 0;  // that the policy gives out now; 0: all
};
HEADRACE_MEMBERS(ScheduleStats, name, stragglers, corrections, planned_steps, decode_threads)

// How a loader's memory is divided between its uses. Bytes, as buffers are charged: rounded up.
struct Budget {
  std::uint64_t staging_bytes = 0;
  std::uint64_t batch_bytes = 0;  // all of them
  std::uint32_t batches_max = 0;  // in work or ready
  std::uint64_t resident_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t results_bytes = 0;
  std::uint64_t decoded_bytes = 0;  // objects that the store decodes as a whole
  std::uint64_t request_bytes = 0;  // the store's own, for requests
};
HEADRACE_MEMBERS(Budget, staging_bytes, batch_bytes, batches_max, resident_bytes, pinned_bytes,
                 scratch_bytes, results_bytes, decoded_bytes, request_bytes)

// One batch of one rank that its consumer took. Nanoseconds of the system's monotonic clock, which
// all processes of a machine share.
struct StepTime {
  std::uint64_t run = 0;  // number of the run: its first batch was not read ahead
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t lane = 0;
  std::int64_t admitted_ns = 0;  // its reads began
  std::int64_t read_ns = 0;      // all of its bytes were there
  std::int64_t done_ns = 0;      // and decoded
  std::int64_t busy_ns = 0;      // BatchTimes::busy_ns
  std::int64_t handed_ns = 0;    // those before it were, too
  std::int64_t taken_ns = 0;
  StallTimes stall_ns{};  // waited for it, by StallCause
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // stored, of the samples decoded

  [[nodiscard]] std::int64_t waited_ns() const {
    std::int64_t all = 0;
    for (const std::int64_t ns : stall_ns) all += ns;
    return all;
  }
};
HEADRACE_MEMBERS(StepTime, run, epoch, step, lane, admitted_ns, read_ns, done_ns, busy_ns,
                 handed_ns, taken_ns, stall_ns, samples, bytes)

// By nearest rank; all 0 if there are no values.
struct Percentiles {
  std::uint64_t count = 0;
  std::int64_t p50_ns = 0;
  std::int64_t p95_ns = 0;
  std::int64_t p99_ns = 0;
};
HEADRACE_MEMBERS(Percentiles, count, p50_ns, p95_ns, p99_ns)

// Figures of the newest batches of one lane, except the first of each run: no step precedes it.
struct LaneFigures {
  Percentiles step;             // from one batch taken to the next
  Percentiles wait;             // of a batch
  std::int64_t spanned_ns = 0;  // sum over steps
  StallTimes stall_ns{};        // of these steps, by StallCause
};
HEADRACE_MEMBERS(LaneFigures, step, wait, spanned_ns, stall_ns)

// How unequal ranks that train in step are: shares of iterations in which the slowest differs from
// the fastest by more than theta times the training time, which is the least time of any lane from
// taking one batch to asking for the next.
inline constexpr std::array<double, 3> kImbalanceThetas = {0.05, 0.1, 0.2};
struct Imbalance {
  std::uint64_t iterations = 0;  // those of which every lane's batch and the one before are known
  // By theta: comparing when their batch was done, since the last rank took the step before ...
  std::array<double, kImbalanceThetas.size()> late{};
  // ... and comparing how long their lanes were busy, whether a rank waited or not.
  std::array<double, kImbalanceThetas.size()> busy{};
};
HEADRACE_MEMBERS(Imbalance, iterations, late, busy)

// What the engine of one rank, or of all ranks of a node process, did so far. Only `delivered` is
// one rank's.
struct LoaderStats {
  std::uint32_t lane = 0;  // of the rank, in engine.lanes
  Delivered delivered;     // to the rank
  EngineStats engine;      // over all runs
  StoreStats store;
  Budget budget;
  int threads = 0;
  int cores = 0;                       // that the process of the engine may use
  std::uint64_t message_bytes = 0;     // sent by the node process to this rank, for batches too,
                                       // without mapped memory; 0: there is no node process
  std::int64_t running_ns = 0;         // summed over runs, from start to end or now
  std::int64_t device_read_bytes = 0;  // of the process since the loader was opened; -1: unknown
  std::uint64_t index_bytes = 0;       // of the mapped index file
  std::vector<std::uint32_t> awaited;  // ranks of the job that others wait for, to begin a run
  std::vector<NamedTierStats> tiers;   // fastest first
  NodeTraffic nodes;
  ScheduleStats schedule;
  std::vector<LaneFigures> figures;  // by lane, of its newest batches; and of all lanes' together
  LaneFigures first_epoch;           // of the rank's first epoch: of its first batches
  Imbalance imbalance;
};
HEADRACE_MEMBERS(LoaderStats, lane, delivered, engine, store, budget, threads, cores, message_bytes,
                 running_ns, device_read_bytes, index_bytes, awaited, tiers, nodes, schedule,
                 figures, first_epoch, imbalance)

}  // namespace headrace
