#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "plan/schedule/schedule_file.h"

namespace headrace {

// What a step asks of one lane.
struct LaneDemand {
  std::uint64_t samples = 0;  // in its batch
  double local_bytes = 0;     // that tiers of the node have, by the plan
  double peer_bytes = 0;      // tiers of another node
  double storage_bytes = 0;

  friend bool operator==(const LaneDemand&, const LaneDemand&) = default;
};

// Decides the threads of every lane for one step: Lobster's shares, or any others. plan/ knows no
// machine, so whoever has a model of one gives this; it must be pure, as plan/ is.
using ThreadsOfLanes = std::function<std::vector<LaneThreads>(std::span<const LaneDemand>)>;

struct ScheduleRequest {
  ScheduleHeader header;
  Order* order = nullptr;  // deliveries of the node's ranks, from header.start on
  // Step for step with the order, of the same node; null: everything comes from storage.
  Placement* placement = nullptr;
  // What the placement plans with: to say in which block a sample is. Null without a placement.
  const BlockMap* blocks = nullptr;
  std::function<std::uint64_t(SampleId)> sample_bytes;
  ThreadsOfLanes threads;
  std::uint64_t steps_max = ~std::uint64_t{0};  // at least 1; the schedule ends there
};

// The demand of each of `lanes` lanes, the first of which is rank `first_rank`. A sample comes from
// where the step's use of its block finds it. One whose block was read in an earlier step counts
// as read from storage now: it is part of a large read that this lane, too, has to wait for.
//
// Errors: InvalidArgument  a delivery to a rank that is no lane
Result<std::vector<LaneDemand>> DemandOfStep(const ScheduleRequest& request, const Step& step,
                                             const PlacedStep* placed);

// Computes a schedule offline and writes it. Returns the number of steps.
//
// Errors: those of ScheduleWriter, of DemandOfStep
//         InvalidArgument     the order has no step
//         FailedPrecondition  order and placement are not at the same step, or one ends first
Result<std::uint64_t> MakeSchedule(const ScheduleRequest& request, ScheduleWriter::Sink sink);

}  // namespace headrace
