#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/batch/batch.h"
#include "engine/memory/scratch_budget.h"
#include "loader/config/budget.h"
#include "loader/config/loader_options.h"

namespace headrace {

class Index;
class Planner;

// A loader's resolved configuration: its order and its memory budget. Opens nothing.
struct Job {
  LoaderOptions options;  // sample_count and threads filled in, capacities those of all its ranks
  std::vector<BatchField> schema;
  std::uint64_t steps_per_epoch = 0;
  std::shared_ptr<const Planner> planner;
  Budget budget;
  double scratch_share = 1;  // bytes of memory= that yield one of budget.scratch_bytes
};

// Errors: InvalidArgument  options that cannot be, named; a budget below what the job needs
Result<Job> SettleJob(const std::shared_ptr<const Index>& index, LoaderOptions options);

// The scratch budget that all decodes of a job share; null if it decodes nothing. `options`: those
// of the Job.
std::shared_ptr<ScratchBudget> MakeScratch(const Budget& budget, const LoaderOptions& options,
                                           double scratch_share);

}  // namespace headrace
