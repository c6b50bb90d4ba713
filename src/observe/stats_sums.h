#pragma once

#include <cstdint>

#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/loader_stats.h"
#include "headrace/part_stats.h"

namespace headrace {

// Adds the counters of a run; its gauges replace the earlier ones. The figures of a lane are summed
// over runs, too.
void AddRun(const EngineStats& run, EngineStats& total);

// The consumer took a batch.
void AddBatch(const Batch& batch, Delivered& total);

// A sample's part of EpochTaken::sample_sum.
std::uint64_t SampleSum(SampleId sample);

}  // namespace headrace
