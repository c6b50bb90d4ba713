#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "engine/engine_parts.h"
#include "headrace/status.h"
#include "loader/machine/numa.h"
#include "loader/machine/thread_executor.h"

namespace headrace {

struct NearLanesOptions {
  std::size_t lanes = 1;
  int threads = 1;  // decode threads of all lanes together
  int nice = 0;
  std::uint64_t staging_bytes = 0;  // of all lanes together
  std::uint64_t batch_bytes = 0;    // of all lanes together
  bool shared_batches = false;      // whether other processes can map batch memory
};

// The threads and the memory of a session's lanes, each on the NUMA node that serves it.
//
// Thread safety: immutable, except for the threads and pools that it owns.
// Shutdown: users of the threads must end before the destructor, which waits for the threads.
class NearLanes {
 public:
  // Errors: those of ThreadExecutor::Make and BufferPool::MakeShared
  static Result<NearLanes> Make(const NearLanesOptions& options, const NumaRequest& numa);

  // The engine's resources for a lane. The caller adds the sink.
  [[nodiscard]] EngineLane lane(std::size_t number) const;
  // The executor of the engine itself, and the memory of reads for all lanes: on the first lane's
  // NUMA node.
  [[nodiscard]] ThreadExecutor& executor() const { return *places_.front().executor; }
  [[nodiscard]] const std::shared_ptr<BufferPool>& staging() const {
    return places_.front().staging;
  }

 private:
  // The threads and memory on one NUMA node.
  struct Place {
    std::unique_ptr<ThreadExecutor> executor;
    std::shared_ptr<BufferPool> staging;
  };

  std::vector<Place> places_;
  std::vector<std::size_t> place_of_lane_;
  std::vector<std::shared_ptr<BufferPool>> batch_memory_;  // by lane
};

}  // namespace headrace
