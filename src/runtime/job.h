#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/batch.h"
#include "runtime/budget.h"
#include "runtime/loader_options.h"

namespace headrace {

class Index;
class Planner;

// A loader's job, decided and nothing of it opened: what order, in which memory.
struct Job {
  LoaderOptions options;  // sample_count and threads filled in, capacities those of all its ranks
  std::vector<BatchField> schema;
  std::uint64_t steps_per_epoch = 0;
  std::shared_ptr<const Planner> planner;
  Budget budget;
};

// Errors: InvalidArgument  options that cannot be, named; a budget below what the job needs
Result<Job> SettleJob(const std::shared_ptr<const Index>& index, LoaderOptions options);

}  // namespace headrace
