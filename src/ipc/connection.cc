#include "ipc/connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "ipc/address.h"
#include "ipc/packet.h"

namespace headrace {
namespace {

// Waits for `events`; returns false after a timeout. An error of the socket ends the wait, too: the
// next call reports it.
bool WaitFor(int socket, short events, std::int64_t deadline_ns) {
  while (true) {
    timespec left{};
    if (deadline_ns >= 0) {
      const std::int64_t ns = deadline_ns - MonotonicClock().NowNanos();
      if (ns <= 0) return false;
      left = {static_cast<std::time_t>(ns / kNsPerSecond), ns % kNsPerSecond};
    }
    pollfd waited{.fd = socket, .events = events, .revents = 0};
    const int ready = ::ppoll(&waited, 1, deadline_ns >= 0 ? &left : nullptr, nullptr);
    if (ready > 0) return true;
    HEADRACE_CHECK(ready == 0 || errno == EINTR || errno == ENOMEM);
  }
}

// The absolute deadline; negative: none.
std::int64_t DeadlineOf(std::int64_t timeout_ns) {
  if (timeout_ns < 0) return -1;
  const std::int64_t now = MonotonicClock().NowNanos();
  return timeout_ns > INT64_MAX - now ? -1 : now + timeout_ns;
}

int IntOption(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

Result<std::unique_ptr<IpcConnection>> IpcConnection::Connect(std::string_view name) {
  const std::string doing = "connecting to socket @" + std::string(name);
  HEADRACE_ASSIGN_OR_RETURN(const auto address, internal::AbstractAddress::Make(name));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return internal::SystemError(doing, errno);
  internal::SetSocketRoom(fd.get());
  if (::connect(fd.get(), address.get(), address.size) != 0) {
    if (errno == ECONNREFUSED) {
      return Status(StatusCode::kUnavailable,
                    doing + ": nobody serves it; start the process that does, or correct the name");
    }
    if (errno == EAGAIN) {
      return Status(StatusCode::kUnavailable,
                    doing + ": too many connections wait to be accepted; try again");
    }
    return internal::SystemError(doing, errno);
  }
  const auto peer = internal::PeerOf(fd.get());
  if (!peer.ok()) return peer.status().WithContext(doing);
  if (peer.value().uid != ::geteuid()) {
    return FailedPrecondition("{}: it is served by {}, not by user {}: choose another name", doing,
                              internal::Described(peer.value()), ::geteuid());
  }
  // A call that may block takes one system call, not three.
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return internal::SystemError(doing, errno);
  }
  return std::unique_ptr<IpcConnection>(new IpcConnection(std::move(fd), peer.value().pid));
}

Result<std::pair<std::unique_ptr<IpcConnection>, std::unique_ptr<IpcConnection>>>
IpcConnection::MakePair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return internal::SystemError("making two connected sockets", errno);
  }
  UniqueFd first(ends[0]);
  UniqueFd second(ends[1]);
  HEADRACE_ASSIGN_OR_RETURN(auto one, FromFd(std::move(first)));
  HEADRACE_ASSIGN_OR_RETURN(auto other, FromFd(std::move(second)));
  return std::pair(std::move(one), std::move(other));
}

Result<std::unique_ptr<IpcConnection>> IpcConnection::FromFd(UniqueFd fd) {
  const std::string doing = "connection of descriptor " + std::to_string(fd.get());
  if (IntOption(fd.get(), SO_DOMAIN) != AF_UNIX || IntOption(fd.get(), SO_TYPE) != SOCK_SEQPACKET) {
    return InvalidArgument("{}: must be a Unix socket of whole messages", doing);
  }
  if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) return internal::SystemError(doing, errno);
  internal::SetSocketRoom(fd.get());
  const auto peer = internal::PeerOf(fd.get());
  if (!peer.ok()) return peer.status().WithContext(doing);
  return std::unique_ptr<IpcConnection>(new IpcConnection(std::move(fd), peer.value().pid));
}

Status IpcConnection::Explained(const Status& status) const {
  if (!shut_down_.load()) {
    return status.WithContext("connection with process " + std::to_string(peer_pid_));
  }
  return {StatusCode::kCancelled,
          fmt::format("connection with process {}: it was shut down", peer_pid_)};
}

Status IpcConnection::Send(std::span<const std::byte> bytes, std::span<const int> fds,
                           std::int64_t timeout_ns) {
  const auto packet = internal::OutPacket::Make(bytes, fds);
  if (!packet.ok()) return Explained(packet.status());
  // Only a call with a timeout polls before it blocks.
  const bool wait = timeout_ns < 0;
  std::optional<std::int64_t> deadline_ns;
  while (true) {
    const auto sent = packet.value().Send(fd_.get(), wait);
    if (!sent.ok()) return Explained(sent.status());
    if (sent.value()) return {};
    if (!deadline_ns) deadline_ns = DeadlineOf(timeout_ns);
    if (!WaitFor(fd_.get(), POLLOUT, *deadline_ns)) {
      return Explained(Status(StatusCode::kDeadlineExceeded,
                              "sending a message: the other side has not read in time"));
    }
  }
}

Result<std::optional<IpcMessage>> IpcConnection::Receive(std::int64_t timeout_ns) {
  std::optional<std::int64_t> deadline_ns;
  while (true) {
    if (shut_down_.load()) return Explained({});
    auto message = internal::ReceivePacket(fd_.get(), timeout_ns < 0);
    if (!message.ok()) return Explained(message.status());
    if (message.value()) return message;
    if (!deadline_ns) deadline_ns = DeadlineOf(timeout_ns);
    if (!WaitFor(fd_.get(), POLLIN, *deadline_ns)) return std::optional<IpcMessage>();
  }
}

void IpcConnection::Shutdown() {
  shut_down_.store(true);
  (void)::shutdown(fd_.get(), SHUT_RDWR);  // Fails if the peer has gone: no call waits then.
}

}  // namespace headrace
