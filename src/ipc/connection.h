#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "ipc/message.h"

namespace headrace {

// One end of a connection between two processes of a node: whole messages, in order, with
// descriptors. A payload of more than 32 KiB travels in memory that cannot change once it is sent.
// Nothing here raises SIGPIPE.
//
// Thread safety: every method may be called from any thread; a message goes to one
// of those that receive, and is never mixed with another's.
// Shutdown: Shutdown() ends the calls that wait; the destructor closes.
class IpcConnection {
 public:
  static constexpr std::int64_t kForever = -1;

  // To the IpcServer of that name, if it is served by our own user: a name in the abstract
  // namespace belongs to whoever was first. Never waits.
  //
  // Errors: Unavailable         nobody serves the name, or more wait than it has places; try again
  //         FailedPrecondition  another user serves it
  //         InvalidArgument     an empty name, or one of more than 107 bytes
  //         ResourceExhausted   no descriptor is left
  static Result<std::unique_ptr<IpcConnection>> Connect(std::string_view name);

  // Two ends that are connected, one to be handed to a child: its fd(), or a copy of it.
  //
  // Errors: ResourceExhausted  no descriptor is left
  static Result<std::pair<std::unique_ptr<IpcConnection>, std::unique_ptr<IpcConnection>>>
  MakePair();

  // The end that a parent handed over. Who has the descriptor is trusted to have it: users are not
  // compared.
  //
  // Errors: InvalidArgument  not a Unix socket of whole messages (SOCK_SEQPACKET)
  static Result<std::unique_ptr<IpcConnection>> FromFd(UniqueFd fd);

  IpcConnection(const IpcConnection&) = delete;
  IpcConnection& operator=(const IpcConnection&) = delete;

  // Sends the message, whole or, on an error, not at all. Waits while more is under way than the
  // other side has read. `fds` stay the caller's; the receiver gets its own.
  //
  // Errors: InvalidArgument    more than kIpcMessageBytesMax or kIpcFdsMax; not descriptors
  //         DeadlineExceeded   `timeout_ns` passed; 0: would have had to wait
  //         Unavailable        the other process has gone
  //         Cancelled          Shutdown() was called
  //         ResourceExhausted  no memory or descriptor for it
  Status Send(std::span<const std::byte> bytes, std::span<const int> fds = {},
              std::int64_t timeout_ns = kForever);

  // The next message, or nothing if `timeout_ns` passed (0: does not wait). What was sent before
  // the other process went is received first.
  //
  // Errors: Unavailable        the other process has gone
  //         Cancelled          Shutdown() was called
  //         DataLoss           the other side does not speak the protocol; give the connection up
  //         ResourceExhausted  no descriptor is left to receive one: the message is lost
  Result<std::optional<IpcMessage>> Receive(std::int64_t timeout_ns = kForever);

  // Both sides' calls end, now and later; the other side still receives what was sent.
  void Shutdown();

  // To be handed to a child, or waited for; stays this object's.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Who connected or served; after MakePair() and FromFd(), who made the pair.
  [[nodiscard]] pid_t peer_pid() const { return peer_pid_; }

 private:
  friend class IpcServer;  // takes fd_
  IpcConnection(UniqueFd fd, pid_t peer_pid) : fd_(std::move(fd)), peer_pid_(peer_pid) {}
  // Cancelled, if it was Shutdown() that made a call fail.
  [[nodiscard]] Status Explained(const Status& status) const;

  UniqueFd fd_;
  const pid_t peer_pid_;
  std::atomic<bool> shut_down_ = false;
};

}  // namespace headrace
