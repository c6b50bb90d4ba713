#include "loader_stats.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "arrays.h"
#include "convert/text.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

nb::dict PoolDict(const BufferPool::Stats& pool) {
  nb::dict dict;
  dict["capacity"] = pool.capacity_bytes;
  dict["used"] = pool.used_bytes;
  dict["peak"] = pool.used_bytes_peak;
  dict["beyond"] = pool.beyond_bytes;
  dict["beyond_peak"] = pool.beyond_bytes_peak;
  dict["beyond_count"] = pool.beyond_count;
  return dict;
}

nb::list TierDicts(const LoaderStats& stats) {
  nb::list list;
  for (std::size_t i = 0; i < stats.tiers.size(); ++i) {
    const TierStats& tier = stats.tiers[i].stats;
    const TierCounts& counts = stats.engine.tiers;
    const TierUses uses = i < counts.uses.size() ? counts.uses[i] : TierUses();
    nb::dict dict;
    dict["name"] = ToMessage(stats.tiers[i].name);
    dict["capacity"] = tier.capacity_bytes;
    dict["used"] = tier.used_bytes;
    dict["peak"] = tier.used_bytes_peak;
    dict["entries"] = tier.entries;
    dict["inherited"] = tier.entries_inherited;
    dict["uses"] = uses.samples;
    dict["reuse"] = uses.samples - uses.ahead;
    dict["ready"] = uses.ahead;
    dict["use_bytes"] = uses.bytes;
    dict["planned"] = i < counts.planned.size() ? counts.planned[i] : 0;
    dict["inserts"] = tier.inserts;
    dict["refused"] = tier.inserts_refused;
    dict["failed"] = tier.inserts_failed + tier.reads_failed;
    dict["corrupt"] = tier.corrupt;
    dict["degraded"] = tier.degraded ? nb::object(ToMessage(tier.degraded_reason)) : nb::none();
    list.append(dict);
  }
  return list;
}

nb::dict ScheduleDict(const ScheduleStats& schedule) {
  nb::dict dict;
  dict["name"] = ToMessage(schedule.name);
  dict["stragglers"] = schedule.stragglers;
  dict["corrections"] = schedule.corrections;
  dict["planned_steps"] = schedule.planned_steps;
  dict["decode_threads"] = schedule.decode_threads;
  return dict;
}

nb::dict SourcesDict(const TierCounts& counts) {
  std::uint64_t uses = 0;
  for (const TierUses& tier : counts.uses) uses += tier.samples;
  nb::dict dict;
  dict["storage"] = counts.storage_uses;
  dict["tiers"] = uses;
  dict["waited"] = counts.waits;
  dict["fetched_ahead"] = counts.fetched_ahead;
  dict["moved"] = counts.moved;
  dict["not_kept"] = counts.not_kept;
  dict["fallbacks"] = counts.fallbacks;
  return dict;
}

nb::dict StallDict(std::span<const std::int64_t, kStallCauses> stall_ns) {
  nb::dict dict;
  dict["storage"] = stall_ns[static_cast<std::size_t>(StallCause::kStorage)];
  dict["decode"] = stall_ns[static_cast<std::size_t>(StallCause::kDecode)];
  dict["consumer"] = stall_ns[static_cast<std::size_t>(StallCause::kConsumer)];
  dict["ranks"] = stall_ns[static_cast<std::size_t>(StallCause::kRanks)];
  return dict;
}

nb::tuple PercentilesTuple(const Percentiles& of) {
  return nb::make_tuple(of.count, of.p50_ns, of.p95_ns, of.p99_ns);
}

nb::list LaneDicts(const LoaderStats& stats) {
  const std::vector<LaneStats>& lanes = stats.engine.lanes;
  std::vector<LaneFigures> figures = stats.figures;
  figures.resize(lanes.size());  // A node process may say anything.
  nb::list list;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const LaneStats& lane = lanes[i];
    nb::dict dict;
    dict["batches"] = lane.batches;
    dict["samples"] = lane.samples;
    dict["sample_bytes"] = lane.sample_bytes;
    dict["copied_bytes"] = lane.copied_bytes;
    dict["decode_ns"] = lane.decode_ns;
    dict["busy_ns"] = lane.busy_ns;
    dict["stall_ns"] = StallDict(lane.stall_ns);
    dict["held_up_ns"] = lane.held_up_ns;
    dict["ready"] = lane.ready;
    dict["in_work"] = lane.steps_in_work;
    dict["queued_reads"] = lane.queued_reads;
    dict["gone"] = lane.gone;
    dict["memory"] = PoolDict(lane.batch);
    dict["step"] = PercentilesTuple(figures[i].step);
    dict["wait"] = PercentilesTuple(figures[i].wait);
    dict["spanned_ns"] = figures[i].spanned_ns;
    dict["spanned_stall_ns"] = StallDict(figures[i].stall_ns);
    list.append(dict);
  }
  return list;
}

nb::dict ImbalanceDict(const Imbalance& imbalance) {
  nb::dict dict;
  dict["iterations"] = imbalance.iterations;
  dict["thetas"] = nb::tuple(nb::cast(kImbalanceThetas));
  dict["late"] = nb::tuple(nb::cast(imbalance.late));
  dict["busy"] = nb::tuple(nb::cast(imbalance.busy));
  return dict;
}

}  // namespace

nb::dict StepTimesDict(const std::vector<StepTime>& steps) {
  nb::dict dict;
  const auto add = [&](const char* name, auto value) {
    std::vector<std::int64_t> column;
    column.reserve(steps.size());
    for (const StepTime& step : steps) column.push_back(static_cast<std::int64_t>(value(step)));
    dict[name] = ToArray(std::move(column));
  };
  add("run", [](const StepTime& step) { return step.run; });
  add("epoch", [](const StepTime& step) { return step.epoch; });
  add("step", [](const StepTime& step) { return step.step; });
  add("lane", [](const StepTime& step) { return step.lane; });
  add("admitted_ns", [](const StepTime& step) { return step.admitted_ns; });
  add("read_ns", [](const StepTime& step) { return step.read_ns; });
  add("done_ns", [](const StepTime& step) { return step.done_ns; });
  add("busy_ns", [](const StepTime& step) { return step.busy_ns; });
  add("handed_ns", [](const StepTime& step) { return step.handed_ns; });
  add("taken_ns", [](const StepTime& step) { return step.taken_ns; });
  add("storage_ns", [](const StepTime& step) { return step.stall_ns[0]; });
  add("decode_ns", [](const StepTime& step) { return step.stall_ns[1]; });
  add("consumer_ns", [](const StepTime& step) { return step.stall_ns[2]; });
  add("ranks_ns", [](const StepTime& step) { return step.stall_ns[3]; });
  add("samples", [](const StepTime& step) { return step.samples; });
  add("bytes", [](const StepTime& step) { return step.bytes; });
  return dict;
}

nb::dict StatsDict(const LoaderStats& stats) {
  nb::dict dict;
  dict["lane"] = stats.lane;
  dict["lanes"] = LaneDicts(stats);
  dict["imbalance"] = ImbalanceDict(stats.imbalance);
  dict["batches"] = stats.delivered.batches;
  dict["samples"] = stats.delivered.samples;
  dict["running_ns"] = stats.running_ns;
  std::uint64_t copied_bytes = 0;
  for (const LaneStats& lane : stats.engine.lanes) copied_bytes += lane.copied_bytes;
  dict["copied_bytes"] = copied_bytes;
  dict["message_bytes"] = stats.message_bytes;
  dict["reads"] = stats.engine.reads;
  dict["read_bytes"] = stats.engine.read_bytes;
  dict["device_bytes"] = stats.device_read_bytes;
  dict["store"] = stats.store.name;
  dict["store_note"] = ToMessage(stats.store.note);
  dict["store_bytes_direct"] = stats.store.bytes_direct;
  dict["store_bytes_page_cache"] = stats.store.bytes_page_cache;
  dict["store_retries"] = stats.store.retries;
  dict["store_failures"] = stats.store.failures;
  dict["staging"] = PoolDict(stats.engine.staging);
  dict["batch_memory"] = PoolDict(stats.engine.batch);
  const CellPool::Stats& resident = stats.engine.resident;
  dict["resident"] = resident.used_units * resident.unit_bytes;
  dict["resident_peak"] = resident.used_units_peak * resident.unit_bytes;
  dict["resident_budget"] = resident.capacity_units * resident.unit_bytes;
  dict["pinned"] = PoolDict(stats.engine.pinned);
  const ScratchBudget::Stats& scratch = stats.engine.scratch;
  dict["scratch"] = scratch.used_bytes;
  dict["scratch_peak"] = scratch.used_bytes_peak;
  dict["scratch_budget"] = scratch.capacity_bytes;
  dict["large_decodes"] = scratch.large_count;
  // Each rank has workers of its own.
  dict["results_budget"] =
      stats.budget.results_bytes / std::max<std::size_t>(1, stats.engine.lanes.size());
  dict["block_reads"] = stats.engine.block_reads;
  dict["block_bytes"] = stats.engine.block_bytes;
  dict["reread_bytes"] = stats.engine.reread_bytes;
  dict["pinned_bytes"] = stats.engine.pinned_bytes;
  dict["batches_ahead_max"] = stats.budget.batches_max;
  dict["index_bytes"] = stats.index_bytes;
  dict["threads"] = stats.threads;
  dict["cores"] = stats.cores;
  dict["tiers"] = TierDicts(stats);
  dict["sources"] = SourcesDict(stats.engine.tiers);
  dict["awaited"] = nb::cast(stats.awaited);
  dict["schedule"] = ScheduleDict(stats.schedule);
  dict["substituted"] = stats.delivered.substituted;
  nb::list substitutions;
  for (const Substitution& each : stats.delivered.substitutions) {
    substitutions.append(nb::make_tuple(each.epoch, each.step, each.slot, Raw(each.wanted),
                                        Raw(each.given), ToMessage(each.reason)));
  }
  dict["substitutions"] = substitutions;
  return dict;
}

}  // namespace headrace::bindings
