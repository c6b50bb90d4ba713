#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"
#include "headrace/status.h"
#include "ipc/connection.h"

namespace headrace {

// A program that this process started, at the other end of a connection. Spawned, not forked: it
// has no lock, thread or descriptor of this process but its end of the connection. It reads and
// writes /dev/null, and a Ctrl-C in the terminal does not reach it: it is killed.
//
// Thread safety: connection() from any thread, other methods from one at a time.
// Shutdown: the destructor kills the process. It waits at most kEndNs for its end: a process that
//           the kernel cannot end now, because its storage does not answer, ends later.
class SpawnedProcess {
 public:
  static constexpr std::int64_t kEndNs = kNsPerSecond;

  // Runs `command`, which is not empty, with two more arguments: the number of its descriptor of
  // the connection, and this process's id, so that it sees whether this process is gone. `doing` is
  // for messages: "starting a reader of row groups".
  //
  // Errors: FailedPrecondition  it cannot be run
  //         ResourceExhausted   out of descriptors, processes or memory
  static Result<std::unique_ptr<SpawnedProcess>> Start(const std::vector<std::string>& command,
                                                       std::string_view doing);
  ~SpawnedProcess();
  SpawnedProcess(const SpawnedProcess&) = delete;
  SpawnedProcess& operator=(const SpawnedProcess&) = delete;

  [[nodiscard]] IpcConnection& connection() const { return *connection_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

  // Waits for its end, at most `grace_ns`, then kills it. Says how it ended: "was ended by signal
  // 9". Its end of the connection closes before it has ended, so that is not known at once.
  std::string End(std::int64_t grace_ns = 0);

 private:
  SpawnedProcess(std::unique_ptr<IpcConnection> connection, pid_t pid);

  const std::unique_ptr<IpcConnection> connection_;
  const pid_t pid_;
  const UniqueFd process_;  // a pidfd; none if the kernel has none
  bool ended_ = false;
};

}  // namespace headrace
