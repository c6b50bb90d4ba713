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

#include "base/unique_fd.h"
#include "headrace/status.h"
#include "ipc/message.h"

namespace headrace {

// One end of a connection between two processes of a node: whole messages, in order, with
// descriptors. A payload of more than 32 KiB travels in sealed memory. Never raises SIGPIPE.
//
// Thread safety: every method may be called from any thread; each message goes whole to one of the
// receiving threads.
// Ownership: the object owns its socket.
// Shutdown: Shutdown() ends waiting calls; the destructor closes.
class IpcConnection {
 public:
  static constexpr std::int64_t kForever = -1;

  // Connects to the IpcServer of that name, if our own user serves it: a name in the abstract
  // namespace belongs to the first process that takes it. Never waits.
  //
  // Errors: Unavailable         no server has the name, or its queue is full; try again
  //         FailedPrecondition  another user serves it
  //         InvalidArgument     an empty name, or one of more than 107 bytes
  //         ResourceExhausted   no descriptor is left
  static Result<std::unique_ptr<IpcConnection>> Connect(std::string_view name);

  // Two connected ends, one for a child process: its fd(), or a copy of it.
  //
  // Errors: ResourceExhausted  no descriptor is left
  static Result<std::pair<std::unique_ptr<IpcConnection>, std::unique_ptr<IpcConnection>>>
  MakePair();

  // The end that a parent passed on. The descriptor itself is the proof of trust: users are not
  // compared.
  //
  // Errors: InvalidArgument  not a Unix socket of whole messages (SOCK_SEQPACKET)
  static Result<std::unique_ptr<IpcConnection>> FromFd(UniqueFd fd);

  IpcConnection(const IpcConnection&) = delete;
  IpcConnection& operator=(const IpcConnection&) = delete;

  // Sends the whole message or, on an error, nothing. Waits while too much is unread by the
  // receiver. `fds` stay the caller's; the receiver gets copies.
  //
  // Errors: InvalidArgument    more than kIpcMessageBytesMax or kIpcFdsMax; not descriptors
  //         DeadlineExceeded   `timeout_ns` passed; 0: would have had to wait
  //         Unavailable        the other process has ended or closed
  //         Cancelled          Shutdown() was called
  //         ResourceExhausted  no memory or descriptor for it
  Status Send(std::span<const std::byte> bytes, std::span<const int> fds = {},
              std::int64_t timeout_ns = kForever);

  // The next message; std::nullopt if `timeout_ns` passed (0: does not wait). Messages that were
  // sent before the other process ended are received first.
  //
  // Errors: Unavailable        the other process has ended or closed
  //         Cancelled          Shutdown() was called
  //         DataLoss           the peer violated the protocol; close the connection
  //         ResourceExhausted  no descriptor is left to receive one: the message is lost
  Result<std::optional<IpcMessage>> Receive(std::int64_t timeout_ns = kForever);

  // Ends both sides' calls, now and later; the other side still receives what was sent.
  void Shutdown();

  // For a child process, or to poll; owned by this object.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // The process that connected or served; after MakePair() and FromFd(), the one that made the
  // pair.
  [[nodiscard]] pid_t peer_pid() const { return peer_pid_; }

 private:
  friend class IpcServer;  // takes fd_
  IpcConnection(UniqueFd fd, pid_t peer_pid) : fd_(std::move(fd)), peer_pid_(peer_pid) {}
  // Cancelled if Shutdown() was the cause, otherwise `status`.
  [[nodiscard]] Status Explained(const Status& status) const;

  UniqueFd fd_;
  const pid_t peer_pid_;
  std::atomic<bool> shut_down_ = false;
};

}  // namespace headrace
