#pragma once

#include "headrace/batch.h"
#include "headrace/loader_stats.h"
#include "headrace/part_stats.h"

namespace headrace {

// Adds what a run counted; its gauges take the place of those before. A lane of all runs is the sum
// of its part in each.
void AddRun(const EngineStats& run, EngineStats& total);

void AddBatch(const Batch& batch, Delivered& total);

}  // namespace headrace
