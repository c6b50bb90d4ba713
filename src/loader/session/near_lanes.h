#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "base/status.h"
#include "engine/engine_parts.h"
#include "loader/machine/numa.h"
#include "loader/machine/thread_executor.h"

namespace headrace {

struct NearLanesOptions {
  std::size_t lanes = 1;
  int threads = 1;  // that decode, over all lanes
  int nice = 0;
  std::uint64_t staging_bytes = 0;  // over all lanes
  std::uint64_t batch_bytes = 0;    // over all lanes
  bool shared_batches = false;      // batch memory is one that other processes can map
};

// The threads and the memory of the lanes of a job, each on the NUMA node that serves it.
//
// Thread safety: immutable, but for what it holds.
// Shutdown: whatever uses the threads ends before the destructor, which waits for them.
class NearLanes {
 public:
  // Errors: those of ThreadExecutor::Make and BufferPool::MakeShared
  static Result<NearLanes> Make(const NearLanesOptions& options, const NumaRequest& numa);

  // What an engine has of a lane; its sink is the caller's.
  [[nodiscard]] EngineLane lane(std::size_t number) const;
  // Where the engine itself runs, and what it reads for all lanes: on the node of the first.
  [[nodiscard]] ThreadExecutor& executor() const { return *places_.front().executor; }
  [[nodiscard]] const std::shared_ptr<BufferPool>& staging() const {
    return places_.front().staging;
  }

 private:
  // What lies on one NUMA node.
  struct Place {
    std::unique_ptr<ThreadExecutor> executor;
    std::shared_ptr<BufferPool> staging;
  };

  std::vector<Place> places_;
  std::vector<std::size_t> place_of_lane_;
  std::vector<std::shared_ptr<BufferPool>> batch_memory_;  // by lane
};

}  // namespace headrace
