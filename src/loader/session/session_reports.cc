#include "loader/session/session_reports.h"

#include "loader/machine/machine.h"
#include "loader/session/lane_schedule.h"
#include "loader/session/other_nodes.h"
#include "loader/session/session_tiers.h"
#include "store/byte_store.h"

namespace headrace {

SessionReports::SessionReports(const Parts& parts)
    : parts_(parts),
      device_read_bytes_(DeviceReadBytes()),
      sources_(parts.index, parts.config->schema, parts.config->order, parts.tiers),
      totals_(parts.config->options.job.ranks) {}

void SessionReports::OnTaken(std::uint64_t run, std::uint32_t lane, const Batch& batch,
                             std::int64_t taken_ns) {
  totals_.OnTaken(run, lane, batch, taken_ns);
  sources_.OnTaken(lane, batch);
}

Result<std::vector<PlannedRow>> SessionReports::Explain(Position position,
                                                        std::uint32_t lane) const {
  HEADRACE_RETURN_IF_ERROR(parts_.process->Check());
  return sources_.OfStep(position, lane);
}

Result<std::vector<PlannedRow>> SessionReports::ExplainRows(
    std::span<const SampleId> samples) const {
  HEADRACE_RETURN_IF_ERROR(parts_.process->Check());
  return sources_.OfSamples(samples);
}

Result<LoaderStats> SessionReports::stats(std::uint32_t lane) const {
  HEADRACE_RETURN_IF_ERROR(parts_.process->Check());
  LoaderStats stats;
  stats.lane = lane;
  totals_.AddTo(stats);
  stats.tiers = tier_stats();
  if (parts_.nodes != nullptr) stats.nodes = parts_.nodes->traffic();
  stats.store = parts_.store->stats();
  stats.schedule = parts_.schedule->stats();
  stats.budget = parts_.config->budget;
  stats.threads = parts_.config->options.threads;
  stats.cores = UsableCores();
  stats.index_bytes = parts_.index->file_bytes();
  const std::int64_t read_bytes = DeviceReadBytes();
  stats.device_read_bytes = read_bytes < 0 ? -1 : read_bytes - device_read_bytes_;
  return stats;
}

std::vector<NamedTierStats> SessionReports::tier_stats() const {
  std::vector<NamedTierStats> all;
  if (parts_.tiers == nullptr || parts_.process->forked()) return all;
  for (const std::unique_ptr<Tier>& tier : parts_.tiers->tiers()) {
    all.push_back({.name = tier->name(), .stats = tier->stats()});
  }
  return all;
}

Result<std::vector<StepTime>> SessionReports::step_times() const {
  HEADRACE_RETURN_IF_ERROR(parts_.process->Check());
  return totals_.step_times();
}

std::vector<PreprocessRow> SessionReports::decode_times() const {
  if (parts_.process->forked()) return {};
  return parts_.schedule->decode_times();
}

}  // namespace headrace
