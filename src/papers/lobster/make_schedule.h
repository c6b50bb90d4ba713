#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "model/lane_load.h"
#include "papers/lobster/schedule_file.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

// The work of one step for one lane.
struct LaneDemand {
  std::uint64_t samples = 0;              // in its batch
  LaneLoad::ByTier<double> tier_bytes{};  // in each tier of the node, by the plan
  double peer_bytes = 0;                  // in tiers of another node
  double storage_bytes = 0;

  [[nodiscard]] double bytes() const;  // of its batch

  friend bool operator==(const LaneDemand&, const LaneDemand&) = default;
};

// Decides the threads of every lane for one step: Lobster's shares, or others. plan/ does not know
// the machine, so the caller, who has a model of it, passes this function; it must be pure, as
// plan/ is.
using ThreadsOfLanes = std::function<std::vector<LaneThreads>(std::span<const LaneDemand>)>;

struct ScheduleRequest {
  ScheduleHeader header;
  Order* order = nullptr;  // deliveries of the node's ranks, from header.start on
  // At the same step as the order, of the same node; null: everything comes from storage.
  Placement* placement = nullptr;
  // The placement's blocks, to find the block of a sample. Null without a placement.
  const BlockMap* blocks = nullptr;
  std::function<std::uint64_t(SampleId)> sample_bytes;
  ThreadsOfLanes threads;
  std::uint64_t steps_max = ~std::uint64_t{0};  // at least 1; the schedule ends there
};

// The demand of each of `lanes` lanes, the first of which is rank `first_rank`. A sample comes from
// the source of the step's use of its block. A sample whose block was read in an earlier step
// counts as read from storage now: it is part of a large read that this lane, too, has to wait for.
//
// Errors: InvalidArgument  a delivery to a rank that is not a lane
Result<std::vector<LaneDemand>> DemandOfStep(const ScheduleRequest& request, const Step& step,
                                             const PlacedStep* placed);

// Computes a schedule offline and writes it. Returns the number of steps.
//
// Errors: those of ScheduleWriter and DemandOfStep
//         InvalidArgument     the order has no step
//         FailedPrecondition  order and placement are not at the same step, or one ends first
Result<std::uint64_t> MakeSchedule(const ScheduleRequest& request, ScheduleWriter::Sink sink);

}  // namespace headrace
