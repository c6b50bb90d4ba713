#pragma once

#include <functional>

#include "headrace/status.h"
#include "sim/job/engine_job.h"

namespace headrace {

// What RunEngines() does, estimated step by step, without an event for each read: the same orders
// and placements, and for each node a queue at storage, at each tier, at its link and at its cores,
// which works in the order of the steps. A node begins the reads of a step when it has room for its
// batches; the nodes that read storage divide its rate as long as their queues last.
//
// Tiers fetch ahead while storage has nothing else to do. What nodes read for each other is part of
// what they read for the step.
//
// `keep_going` is asked before each node is planned, often while one is, and during each step; once
// it returns false it must do so always. May be empty.
//
// Thread safety: may be called from any thread.
// Memory: 8 bytes a sample, the plans of all nodes, and PlannedBlocks.
// Errors: FailedPrecondition  a lane policy other than the default, a latency of storage, noise of
//                             allreduces, or an order whose nodes send each other samples: they go
//                             by single reads
//         those of RunEngines()
Result<EngineJobResult> RunFast(const SimulatedJob& job, const EngineJobOptions& options,
                                const std::function<bool()>& keep_going = nullptr);

}  // namespace headrace
