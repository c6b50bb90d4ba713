#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ipc/packet.h"

namespace headrace {

// What is kept for a peer whose socket takes no more. One message is kept whatever its size.
struct IpcQueueLimits {
  std::uint64_t bytes_max = 4 * kMiB;
  std::size_t messages_max = 1024;
  std::size_t fds_max = 64;
};

// A process that is connected to an IpcServer.
//
// Thread safety: every method may be called from any thread.
// Lifetime: may be kept as long as one likes; once the peer has gone, or the server, Send() says
// so.
class IpcPeer {
 public:
  IpcPeer(const IpcPeer&) = delete;
  IpcPeer& operator=(const IpcPeer&) = delete;
  ~IpcPeer() = default;

  // Never the same for two peers of a server.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  // Of who connected; of one that was added, who made the pair.
  [[nodiscard]] pid_t pid() const { return credentials_.pid; }

  // Sends the message, or keeps it until the peer has read others; never waits. A peer that lets
  // more wait than the limits is dropped: this message, and those that wait, are lost.
  //
  // Errors: InvalidArgument    more than kIpcMessageBytesMax or kIpcFdsMax; not descriptors
  //         ResourceExhausted  no memory or descriptor for it, the peer stays; or too much waits
  //                            and the peer was dropped
  //         others             why the peer was dropped, before or now
  Status Send(std::span<const std::byte> bytes, std::span<const int> fds = {})
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Drops the peer; OnClosed() will say `why`, which must be an error, unless there was a reason
  // before. The peer receives what its socket took, not what waits.
  void Close(const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  friend class IpcServer;

  // `process`: of who connected, readable at its end, or none.
  IpcPeer(std::uint64_t id, UniqueFd socket, UniqueFd process, const ucred& credentials, int epoll,
          const IpcQueueLimits& limits)
      : id_(id),
        credentials_(credentials),
        limits_(limits),
        epoll_(epoll),
        socket_(std::move(socket)),
        process_(std::move(process)) {}

  // "peer 3 (process 12)"
  [[nodiscard]] std::string name() const;
  // Tells the server's thread that there is more to send, or no longer.
  void WatchForRoom(bool watch) HEADRACE_LOCKS_REQUIRED(mutex_);
  void CloseLocked(const Status& why) HEADRACE_LOCKS_REQUIRED(mutex_);

  // For the server's thread. The socket, as long as nobody closed the peer.
  std::optional<int> OpenSocket() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The process that connected has ended. What it sent comes first, then the end: children that it
  // forked have the connection, too, and would hold it open.
  void EndWithProcess() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Sends what waits, as far as the socket takes it.
  void Flush() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Closes the descriptors; gives the reason.
  Status Detach() HEADRACE_LOCKS_EXCLUDED(mutex_);

  const std::uint64_t id_;
  const ucred credentials_;
  const IpcQueueLimits limits_;
  const int epoll_;  // the server's, as long as socket_ is open

  Mutex mutex_;
  UniqueFd socket_ HEADRACE_GUARDED_BY(mutex_);
  UniqueFd process_ HEADRACE_GUARDED_BY(mutex_);
  Status why_ HEADRACE_GUARDED_BY(mutex_);  // an error: closed
  std::deque<internal::OutPacket> waiting_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t waiting_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t waiting_fds_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
