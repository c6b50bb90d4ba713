#include "ipc/packet.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "ipc/sealed_bytes.h"

namespace headrace::internal {
namespace {

enum class Kind : std::uint16_t { kInline = 0, kLarge = 1 };

constexpr std::size_t kControlBytes = CMSG_SPACE(kPacketFdsMax * sizeof(int));

// Requested size; the kernel may give less (net.core.wmem_max), by default at least 208 KiB.
constexpr int kSocketRoomBytes = 256 * kKiB;

void PutLittle(std::span<std::byte> to, std::uint64_t value) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }
}

std::uint64_t GetLittle(std::span<const std::byte> from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
  }
  return value;
}

Result<std::vector<std::byte>> ReadLarge(int fd, std::uint64_t bytes) {
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t there, SealedBytes(fd));
  if (there != bytes) {
    return DataLoss("receiving a message: a payload of {} bytes in a memfd of {}", bytes, there);
  }
  std::vector<std::byte> payload(bytes);
  HEADRACE_RETURN_IF_ERROR(ReadSealed(fd, payload));
  return payload;
}

// Takes ownership of every received descriptor before any check can fail.
std::vector<UniqueFd> TakeFds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

// The message in a packet of `bytes`, with all received descriptors.
Result<IpcMessage> Parse(std::span<const std::byte> bytes, std::vector<UniqueFd> fds, int flags) {
  if (bytes.size() < kHeaderBytes || (flags & MSG_TRUNC) != 0) {
    return DataLoss("receiving a message: a packet is {}",
                    bytes.size() < kHeaderBytes ? "shorter than its header" : "too long");
  }
  const std::uint64_t payload_bytes = GetLittle(bytes.subspan(0, 4));
  const std::uint64_t fd_count = GetLittle(bytes.subspan(4, 2));
  const std::uint64_t kind = GetLittle(bytes.subspan(6, 2));
  bytes = bytes.subspan(kHeaderBytes);
  if (kind > static_cast<std::uint64_t>(Kind::kLarge) || fd_count > kIpcFdsMax) {
    return DataLoss("receiving a message: kind {}, {} descriptors: not this protocol", kind,
                    fd_count);
  }
  const bool large = kind == static_cast<std::uint64_t>(Kind::kLarge);
  const std::uint64_t expected = fd_count + (large ? 1 : 0);
  if (fds.size() < expected && (flags & MSG_CTRUNC) != 0) {
    return ResourceExhausted(
        "receiving a message with {} descriptors: {} could be opened; raise the limit (ulimit -n)",
        expected, fds.size());
  }
  if (fds.size() != expected || (flags & MSG_CTRUNC) != 0) {
    return DataLoss("receiving a message: received {} descriptors, {} were announced", fds.size(),
                    expected);
  }
  if (large ? !bytes.empty() || payload_bytes > kIpcMessageBytesMax
            : bytes.size() != payload_bytes) {
    return DataLoss("receiving a message: received {} bytes, {} were announced", bytes.size(),
                    payload_bytes);
  }
  IpcMessage message;
  if (large) {
    HEADRACE_ASSIGN_OR_RETURN(message.bytes, ReadLarge(fds.front().get(), payload_bytes));
    fds.erase(fds.begin());
  } else {
    message.bytes.assign(bytes.begin(), bytes.end());
  }
  message.fds = std::move(fds);
  return message;
}

}  // namespace

Status SystemError(const std::string& doing, int error) {
  StatusCode code = StatusCode::kInternal;
  std::string text = doing + ": " + ErrnoText(error);
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
      error == ENOSPC || error == ETOOMANYREFS) {
    code = StatusCode::kResourceExhausted;
    if (error == ETOOMANYREFS) text += "; raise the limit (ulimit -n)";
  } else if (error == EPIPE || error == ECONNRESET || error == ENOTCONN) {
    code = StatusCode::kUnavailable;
    text = doing + ": the other process has closed the connection";
  } else if (error == EBADF) {
    code = StatusCode::kInvalidArgument;
  }
  return {code, std::move(text)};
}

Result<OutPacket> OutPacket::Make(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.size() > kIpcMessageBytesMax || fds.size() > kIpcFdsMax) {
    return InvalidArgument("sending a message of {} and {} descriptors: must be at most {} and {}",
                           FormatBytes(bytes.size()), fds.size(), FormatBytes(kIpcMessageBytesMax),
                           kIpcFdsMax);
  }
  OutPacket packet;
  packet.payload_bytes_ = bytes.size();
  const bool large = bytes.size() > kInlineBytesMax;
  if (large) {
    HEADRACE_ASSIGN_OR_RETURN(packet.large_, MakeSealed(bytes));
    packet.fds_[packet.fd_count_++] = packet.large_.get();
  } else {
    packet.inline_bytes_ = bytes;
  }
  for (const int fd : fds) packet.fds_[packet.fd_count_++] = fd;
  const std::span header(packet.header_);
  PutLittle(header.subspan(0, 4), bytes.size());
  PutLittle(header.subspan(4, 2), fds.size());
  PutLittle(header.subspan(6, 2), static_cast<std::uint64_t>(large ? Kind::kLarge : Kind::kInline));
  return packet;
}

Status OutPacket::Own() {
  for (std::size_t i = large_ ? 1 : 0; i < fd_count_; ++i) {
    UniqueFd copy(::fcntl(fds_[i], F_DUPFD_CLOEXEC, 0));
    if (!copy) return SystemError("keeping a message to be sent later", errno);
    own_fds_.push_back(std::move(copy));
  }
  for (std::size_t i = 0; i < own_fds_.size(); ++i) {
    fds_[i + (large_ ? 1 : 0)] = own_fds_[i].get();
  }
  own_bytes_.assign(inline_bytes_.begin(), inline_bytes_.end());
  inline_bytes_ = own_bytes_;
  return {};
}

Result<bool> OutPacket::Send(int socket, bool wait) const {
  // sendmsg() takes pointers to non-const, but does not change the data.
  std::array<iovec, 2> parts = {
      iovec{const_cast<std::byte*>(header_.data()), header_.size()},
      iovec{const_cast<std::byte*>(inline_bytes_.data()), inline_bytes_.size()}};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (fd_count_ > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fd_count_ * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count_ * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds_.data(), fd_count_ * sizeof(int));
  }
  while (true) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    if (sent >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return false;
    return SystemError("sending a message of " + FormatBytes(payload_bytes_), errno);
  }
}

Result<std::optional<IpcMessage>> ReceivePacket(int socket, bool wait) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-c-arrays): 32 KiB that are not zeroed first
  std::byte bytes[kHeaderBytes + kInlineBytesMax];
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  while (true) {
    iovec part{bytes, sizeof(bytes)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t received =
        ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    if (received < 0) {
      if (errno == EINTR) continue;
      // The peer closed before it read all of our messages. The next call returns what it sent.
      if (errno == ECONNRESET) continue;
      if (errno == EAGAIN) return std::optional<IpcMessage>();
      return SystemError("receiving a message", errno);
    }
    std::vector<UniqueFd> fds = TakeFds(message);
    if (received == 0) return SystemError("receiving a message", EPIPE);
    auto parsed =
        Parse({bytes, static_cast<std::size_t>(received)}, std::move(fds), message.msg_flags);
    if (!parsed.ok()) return parsed.status();
    return std::optional<IpcMessage>(std::move(parsed).value());
  }
}

Result<ucred> PeerOf(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError("reading the credentials of a peer", errno);
  }
  return peer;
}

Result<UniqueFd> ProcessOf(int socket, const ucred& peer) {
  // From the socket, since Linux 6.5: a process number may have been reused.
  constexpr int kPeerPidFd = 77;  // SO_PEERPIDFD, which older headers do not have.
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidFd, &fd, &size) == 0) return UniqueFd(fd);
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process && errno == ESRCH) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("process {} that connected: it has ended", peer.pid));
  }
  return process;
}

void SetSocketRoom(int socket) {
  // Best effort: the kernel's default has room for a message, too.
  (void)::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSocketRoomBytes, sizeof(kSocketRoomBytes));
}

}  // namespace headrace::internal
