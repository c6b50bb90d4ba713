#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/members.h"
#include "engine/batch/batch.h"
#include "engine/engine_stats.h"
#include "observe/memory_budget.h"
#include "observe/step_times.h"
#include "peer/node_traffic.h"
#include "store/byte_store.h"
#include "tier/tier.h"

namespace headrace {

HEADRACE_MEMBERS(ByteRange, offset, size)  // of base/ids.h

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

// What a rank's consumer took. The same in every run of a plan: the engine's own counts are ahead
// of it by what is ready.
struct Delivered {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t substituted = 0;            // samples replaced
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
};
HEADRACE_MEMBERS(Delivered, batches, samples, substituted, substitutions)

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
  std::uint32_t decode_threads = 0;  // that the policy gives out now; 0: all there are
};
HEADRACE_MEMBERS(ScheduleStats, name, stragglers, corrections, planned_steps, decode_threads)

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
  std::uint64_t message_bytes = 0;     // that the node process sent this rank, of batches too: all
                                       // of them that is not mapped; 0: there is none
  std::int64_t running_ns = 0;         // summed over runs, from start to end or now
  std::int64_t device_read_bytes = 0;  // of the process since the loader was opened; -1: unknown
  std::uint64_t index_bytes = 0;       // of the mapped index file
  std::vector<std::uint32_t> awaited;  // ranks of the job that others wait for, to begin a run
  std::vector<NamedTierStats> tiers;   // fastest first
  NodeTraffic nodes;
  ScheduleStats schedule;
  std::vector<LaneFigures> figures;  // by lane, of its newest batches; and of all lanes' together
  Imbalance imbalance;
};
HEADRACE_MEMBERS(LoaderStats, lane, delivered, engine, store, budget, threads, cores, message_bytes,
                 running_ns, device_read_bytes, index_bytes, awaited, tiers, nodes, schedule,
                 figures, imbalance)

// Adds what a run counted; its gauges take the place of those before. A lane of all runs is the sum
// of its part in each.
void AddRun(const EngineStats& run, EngineStats& total);

void AddBatch(const Batch& batch, Delivered& total);

}  // namespace headrace
