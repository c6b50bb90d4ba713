#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/batch/batch.h"
#include "engine/engine_options.h"
#include "loader/config/loader_options.h"
#include "observe/memory_budget.h"

namespace headrace {

class Index;
class ResolvedOrder;

// Options resolved for one dataset and one machine: every default filled in, the memory divided.
struct LoaderConfig {
  LoaderOptions options;  // sample_count and threads filled in, capacities those of all its ranks
  std::vector<BatchField> schema;
  std::uint64_t steps_per_epoch = 0;
  std::shared_ptr<const ResolvedOrder> order;
  Budget budget;
  double scratch_share = 1;  // bytes of memory= that yield one of budget.scratch_bytes

  // What a session of this takes of the machine's memory.
  [[nodiscard]] std::uint64_t memory_bytes() const;
  [[nodiscard]] EngineOptions engine_options() const;
};

// Opens nothing and starts nothing: files that the options name need not exist.
//
// Errors: InvalidArgument  options that cannot be, named; a budget below what they need
Result<LoaderConfig> ResolveConfig(const std::shared_ptr<const Index>& index,
                                   LoaderOptions options);

}  // namespace headrace
