#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "headrace/status.h"
#include "ipc/connection.h"

namespace headrace {

// A worker's end of its connection to a WorkerPool.
//
// A thread watches the host: when the host is gone or has closed the connection, the worker has
// kGraceNs to end by itself; then the thread ends the process, whatever it is doing.
//
// Thread safety: Receive() by one thread at a time, Send() by one thread at a time.
// Shutdown: the destructor stops the thread.
class WorkerChannel {
 public:
  static constexpr std::int64_t kGraceNs = kNsPerSecond;

  // A message of the host, with the memory to map or to release first.
  struct Received {
    std::vector<std::pair<std::uint64_t, std::shared_ptr<SharedMemory>>> fresh;  // by number
    std::vector<std::uint64_t> gone;
    std::vector<std::byte> message;
    std::span<const std::byte> body;  // in `message`
  };

  // `host` is the process at the other end.
  //
  // Errors: those of IpcConnection::FromFd; ResourceExhausted  no descriptor is left
  static Result<std::unique_ptr<WorkerChannel>> Make(UniqueFd connection, pid_t host);
  ~WorkerChannel();
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  // Returns the next message; std::nullopt once the host has closed the connection.
  //
  // Errors: DataLoss  not a message of a host; those of SharedMemory::Map
  Result<std::optional<Received>> Receive();

  // Errors: those of IpcConnection::Send
  Status Send(std::span<const std::byte> message);

 private:
  WorkerChannel(std::unique_ptr<IpcConnection> connection, UniqueFd host, UniqueFd wake);
  void Watch();

  const std::unique_ptr<IpcConnection> connection_;
  const UniqueFd host_;  // a pidfd; none if the kernel has none
  const UniqueFd wake_;  // eventfd: stops the thread
  std::jthread watcher_;
};

}  // namespace headrace
