#pragma once

#include "headrace/batch.h"
#include "headrace/loader_stats.h"
#include "headrace/part_stats.h"

namespace headrace {

// Adds the counters of a run; its gauges replace the earlier ones. The figures of a lane are summed
// over runs, too.
void AddRun(const EngineStats& run, EngineStats& total);

void AddBatch(const Batch& batch, Delivered& total);

}  // namespace headrace
