#include "observe/loader_stats.h"

#include <algorithm>

namespace headrace {
namespace {

void Add(const TierCounts& run, TierCounts& total) {
  total.uses.resize(std::max(total.uses.size(), run.uses.size()));
  for (std::size_t i = 0; i < run.uses.size(); ++i) {
    total.uses[i].samples += run.uses[i].samples;
    total.uses[i].bytes += run.uses[i].bytes;
    total.uses[i].ahead += run.uses[i].ahead;
  }
  total.storage_uses += run.storage_uses;
  total.waits += run.waits;
  total.fetched_ahead += run.fetched_ahead;
  total.moved += run.moved;
  total.not_kept += run.not_kept;
  total.fallbacks += run.fallbacks;
  total.planned.resize(std::max(total.planned.size(), run.planned.size()));
  for (std::size_t i = 0; i < run.planned.size(); ++i) total.planned[i] += run.planned[i];
}

void Add(const LaneStats& run, LaneStats& total) {
  LaneStats sum = run;  // with its gauges
  sum.batches += total.batches;
  sum.samples += total.samples;
  sum.sample_bytes += total.sample_bytes;
  sum.copied_bytes += total.copied_bytes;
  sum.decode_ns += total.decode_ns;
  sum.busy_ns += total.busy_ns;
  for (std::size_t i = 0; i < kStallCauses; ++i) sum.stall_ns[i] += total.stall_ns[i];
  sum.held_up_ns += total.held_up_ns;
  total = sum;
}

}  // namespace

void AddRun(const EngineStats& run, EngineStats& total) {
  total.reads += run.reads;
  total.read_bytes += run.read_bytes;
  total.block_reads += run.block_reads;
  total.block_bytes += run.block_bytes;
  total.reread_bytes += run.reread_bytes;
  total.kept_bytes += run.kept_bytes;
  total.pinned_reads += run.pinned_reads;
  total.pinned_bytes += run.pinned_bytes;
  Add(run.tiers, total.tiers);
  total.substituted += run.substituted;
  for (const Substitution& substitution : run.substitutions) {
    if (total.substitutions.size() >= kSubstitutionsListed) break;
    total.substitutions.push_back(substitution);
  }
  total.reads_in_flight = run.reads_in_flight;
  total.steps_in_work = run.steps_in_work;
  total.staging = run.staging;  // Of the memory, which all runs share.
  total.batch = run.batch;
  total.resident = run.resident;
  total.pinned = run.pinned;
  total.scratch = run.scratch;
  total.lanes.resize(run.lanes.size());
  for (std::size_t i = 0; i < run.lanes.size(); ++i) Add(run.lanes[i], total.lanes[i]);
}

void AddBatch(const Batch& batch, Delivered& total) {
  ++total.batches;
  total.samples += batch.samples.size();
  total.substituted += batch.substitutions.size();
  for (const Substitution& substitution : batch.substitutions) {
    if (total.substitutions.size() >= kSubstitutionsListed) break;
    total.substitutions.push_back(substitution);
  }
}

}  // namespace headrace
