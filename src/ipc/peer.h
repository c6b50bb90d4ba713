#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "headrace/status.h"
#include "ipc/packet.h"

namespace headrace {

// Limits of the queue for a peer whose socket is full. One message is queued whatever its size.
struct IpcQueueLimits {
  std::uint64_t bytes_max = 4 * kMiB;
  std::size_t messages_max = 1024;
  std::size_t fds_max = 64;
};

// A process that is connected to an IpcServer.
//
// Thread safety: every method may be called from any thread.
// Ownership: shared; may outlive the connection and the server: Send() then returns the reason.
class IpcPeer {
 public:
  IpcPeer(const IpcPeer&) = delete;
  IpcPeer& operator=(const IpcPeer&) = delete;
  ~IpcPeer() = default;

  // Unique among the peers of a server.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  // Of the process that connected; for an added one, of the process that made the pair.
  [[nodiscard]] pid_t pid() const { return credentials_.pid; }

  // Sends the message, or queues it until the peer has read others; never waits. A peer whose queue
  // exceeds the limits is dropped: this message, and queued ones, are lost.
  //
  // Errors: InvalidArgument    more than kIpcMessageBytesMax or kIpcFdsMax; not descriptors
  //         ResourceExhausted  no memory or descriptor for it, the peer stays; or the queue is full
  //                            and the peer was dropped
  //         others             why the peer was dropped, before or now
  Status Send(std::span<const std::byte> bytes, std::span<const int> fds = {})
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Drops the peer; OnClosed() receives `why`, an error, unless there was an earlier reason. The
  // peer receives what is in its socket, not what is queued.
  void Close(const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  friend class IpcServer;

  // `process`: readable when the process that connected ends; may be invalid.
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
  // Tells the server's thread whether there is more to send.
  void WatchForRoom(bool watch) HEADRACE_LOCKS_REQUIRED(mutex_);
  void CloseLocked(const Status& why) HEADRACE_LOCKS_REQUIRED(mutex_);

  // For the server's thread. The socket, unless the peer was closed.
  std::optional<int> OpenSocket() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The process that connected has ended. Delivers what it sent, then ends: children that it forked
  // share the connection and would keep it open.
  void EndWithProcess() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Sends queued messages, as far as the socket has room.
  void Flush() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Closes the descriptors; returns the reason.
  Status Detach() HEADRACE_LOCKS_EXCLUDED(mutex_);

  const std::uint64_t id_;
  const ucred credentials_;
  const IpcQueueLimits limits_;
  const int epoll_;  // the server's, while socket_ is open

  Mutex mutex_;
  UniqueFd socket_ HEADRACE_GUARDED_BY(mutex_);
  UniqueFd process_ HEADRACE_GUARDED_BY(mutex_);
  Status why_ HEADRACE_GUARDED_BY(mutex_);  // an error once closed
  std::deque<internal::OutPacket> waiting_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t waiting_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t waiting_fds_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
