#pragma once

// What a loader did, as plain values of Python. The GIL must be held.

#include <nanobind/nanobind.h>

#include <vector>

#include "headrace/loader_stats.h"
#include "observe/step_times.h"

namespace headrace::bindings {

nanobind::dict StatsDict(LoaderStats stats);

// An array for each property of the batches.
nanobind::dict StepTimesDict(const std::vector<StepTime>& steps);

}  // namespace headrace::bindings
