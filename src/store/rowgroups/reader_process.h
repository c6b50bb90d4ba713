#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "base/units.h"
#include "headrace/status.h"
#include "ipc/spawned_process.h"
#include "store/file_table.h"

namespace headrace {

// What a reader decodes: the part of a file that its format calls `part`. Of an empty part it looks
// only whether the file is as it was indexed, and writes one byte.
struct GroupRequest {
  std::string format;
  FileInfo file;  // an object of a store must be of this size and version
  std::string part;
};

// A process that decodes row groups, one at a time, into memory that both processes map.
//
// A request is a message as a WorkerChannel (workers/worker_channel.h) receives it: one new memory,
// the numbers of those to unmap (none: a reader keeps none), and a body: the strings format, path,
// part; the file's size and time of change (8 bytes each). The answer is the number of bytes
// written (8 bytes), and a status.
//
// Thread safety: one thread at a time.
// Shutdown: as SpawnedProcess.
class ReaderProcess {
 public:
  // How long a reader may continue after its bytes are no longer wanted; then it is killed.
  static constexpr std::int64_t kGraceNs = 150 * kNsPerMs;

  // `command`: see helper_command.h.
  //
  // Errors: FailedPrecondition  an empty command, or it cannot be run
  //         ResourceExhausted   out of descriptors, processes or memory
  static Result<std::unique_ptr<ReaderProcess>> Start(const std::vector<std::string>& command);

  // Memory with the decoded bytes: `bytes` of them, at least 1. Calls `wanted` now and then.
  //
  // Errors: Unavailable        the process ended: usable() is false
  //         Cancelled          `wanted` was false for kGraceNs: likewise
  //         DataLoss           it decodes to another size; the answer is none: likewise
  //         ResourceExhausted  no memory
  //         those of the reader
  Result<std::shared_ptr<SharedMemory>> Decode(const GroupRequest& request, std::uint64_t bytes,
                                               const std::function<bool()>& wanted);

  // Whether it can decode more.
  [[nodiscard]] bool usable() const { return usable_; }
  [[nodiscard]] pid_t pid() const { return process_->pid(); }

 private:
  explicit ReaderProcess(std::unique_ptr<SpawnedProcess> process) : process_(std::move(process)) {}
  Result<std::vector<std::byte>> Await(const std::function<bool()>& wanted);
  Status Ended();

  const std::unique_ptr<SpawnedProcess> process_;
  bool usable_ = true;
};

}  // namespace headrace
