#include "papers/lobster/make_schedule.h"

#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

Result<std::optional<PlacedStep>> PlacedFor(const ScheduleRequest& request, Position at) {
  if (request.placement == nullptr) return std::optional<PlacedStep>();
  std::optional<PlacedStep> placed = request.placement->Next();
  if (!placed) {
    return FailedPrecondition(
        "making a schedule: the placement ends before {} of the order; make both of one run",
        StepText(at));
  }
  if (placed->at != at) {
    return FailedPrecondition(
        "making a schedule: the order is at {}, the placement at {}; make both of one run",
        StepText(at), StepText(placed->at));
  }
  return placed;
}

}  // namespace

static_assert(LaneLoad::kTiersMax == kTiersMax);

double LaneDemand::bytes() const {
  return std::accumulate(tier_bytes.begin(), tier_bytes.end(), peer_bytes + storage_bytes);
}

Result<std::vector<LaneDemand>> DemandOfStep(const ScheduleRequest& request, const Step& step,
                                             const PlacedStep* placed) {
  const ScheduleHeader& header = request.header;
  std::unordered_map<std::uint64_t, const PlannedUse*> uses;
  if (placed != nullptr) {
    uses.reserve(placed->uses.size());
    for (const PlannedUse& use : placed->uses) uses.emplace(use.block, &use);
  }
  std::vector<LaneDemand> lanes(header.lanes);
  for (const Delivery& delivery : step.deliveries) {
    if (delivery.rank < header.first_rank || delivery.rank - header.first_rank >= header.lanes) {
      return InvalidArgument(
          "making a schedule: {} delivers to rank {}, the lanes are {} from {} on; make "
          "both of one job",
          StepText({.epoch = step.epoch, .step = step.step}), delivery.rank,
          Counted(header.lanes, "rank"), header.first_rank);
    }
    LaneDemand& lane = lanes[delivery.rank - header.first_rank];
    ++lane.samples;
    const auto bytes = static_cast<double>(request.sample_bytes(delivery.sample));
    const PlannedUse* use = nullptr;
    if (placed != nullptr) {
      const auto found = uses.find(request.blocks->Find(delivery.sample));
      if (found != uses.end()) use = found->second;
    }
    if (use != nullptr && use->tier != kNoTier) {
      lane.tier_bytes[use->tier] += bytes;
    } else if (use != nullptr && use->at_peer) {
      lane.peer_bytes += bytes;
    } else {
      lane.storage_bytes += bytes;
    }
  }
  return lanes;
}

Result<std::uint64_t> MakeSchedule(const ScheduleRequest& request, ScheduleWriter::Sink sink) {
  HEADRACE_CHECK(request.order != nullptr && request.sample_bytes && request.threads);
  HEADRACE_CHECK(request.placement == nullptr || request.blocks != nullptr);
  HEADRACE_CHECK(request.steps_max > 0);
  HEADRACE_ASSIGN_OR_RETURN(ScheduleWriter writer,
                            ScheduleWriter::Make(request.header, std::move(sink)));
  std::uint64_t steps = 0;
  for (; steps < request.steps_max; ++steps) {
    const std::optional<Step> step = request.order->Next();
    if (!step) break;
    ScheduledStep scheduled{.at = {.epoch = step->epoch, .step = step->step}};
    HEADRACE_ASSIGN_OR_RETURN(std::optional<PlacedStep> placed, PlacedFor(request, scheduled.at));
    HEADRACE_ASSIGN_OR_RETURN(const std::vector<LaneDemand> demand,
                              DemandOfStep(request, *step, placed ? &*placed : nullptr));
    scheduled.lanes = request.threads(demand);
    if (placed) scheduled.ops = std::move(placed->ops);
    HEADRACE_RETURN_IF_ERROR(writer.Add(scheduled));
  }
  if (steps == 0) {
    return InvalidArgument("making a schedule: the order has no step");
  }
  HEADRACE_RETURN_IF_ERROR(writer.Finish());
  return steps;
}

}  // namespace headrace
