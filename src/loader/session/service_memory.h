#pragma once

#include <cstdint>
#include <memory>

#include "headrace/status.h"

namespace headrace {

class ReadShare;
class RetainedTiers;

// What the jobs of a node service have together.
struct ServiceMemory {
  std::shared_ptr<RetainedTiers> tiers;  // retains them between sessions; null: nobody does
  std::shared_ptr<ReadShare> share;      // of reads of storage; null: each job reads for itself

  // `share_bytes` 0: none.
  //
  // Errors: ResourceExhausted  no thread
  static Result<ServiceMemory> Make(std::uint64_t retained_bytes, std::uint64_t share_bytes);
};

}  // namespace headrace
