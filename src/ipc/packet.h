#pragma once

// The layout of a message in one packet of a SOCK_SEQPACKET socket, for connection.cc and
// server.cc.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"
#include "headrace/status.h"
#include "ipc/message.h"

namespace headrace::internal {

// A packet is a header and then the payload. A payload of more than kInlineBytesMax may not fit a
// socket buffer: it is in a sealed memfd instead, the first of the packet's descriptors.
//
// Header: payload bytes (4), descriptors of the message (2), kind (2), all little-endian.
inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kInlineBytesMax = 32 * kKiB;
inline constexpr std::size_t kPacketFdsMax = kIpcFdsMax + 1;

// A message that is ready to be sent, also several times.
//
// Thread safety: const methods from any thread.
// Ownership: bytes and descriptors remain the caller's and must stay valid until Own() copies them.
class OutPacket {
 public:
  // Errors: InvalidArgument    more bytes or descriptors than a message may have
  //         ResourceExhausted  no descriptor or memory for a large payload
  static Result<OutPacket> Make(std::span<const std::byte> bytes, std::span<const int> fds);

  // Returns whether it was sent. False if the socket has no room now; with `wait` never false.
  //
  // Errors: Unavailable        the peer has gone
  //         ResourceExhausted  the system has no memory, or too many descriptors are in flight
  [[nodiscard]] Result<bool> Send(int socket, bool wait) const;

  // Copies the caller's bytes and descriptors into this object.
  //
  // Errors: ResourceExhausted  no descriptor is left
  Status Own();

  // The memory and descriptors of a packet that waits until its socket has room.
  [[nodiscard]] std::uint64_t waiting_bytes() const { return kHeaderBytes + payload_bytes_; }
  [[nodiscard]] std::size_t waiting_fds() const { return fd_count_; }

 private:
  std::array<std::byte, kHeaderBytes> header_{};
  std::uint64_t payload_bytes_ = 0;
  std::span<const std::byte> inline_bytes_;
  std::array<int, kPacketFdsMax> fds_{};
  std::size_t fd_count_ = 0;
  UniqueFd large_;  // the memfd of a payload that is not inline; the first of fds_

  std::vector<std::byte> own_bytes_;
  std::vector<UniqueFd> own_fds_;
};

// The next message; std::nullopt if there is none now, with `wait` never. Closes the descriptors of
// a refused packet.
//
// Errors: Unavailable        the peer has gone: there are no more messages
//         DataLoss           an invalid packet
//         ResourceExhausted  no descriptor or memory is left to receive one: the message is lost
Result<std::optional<IpcMessage>> ReceivePacket(int socket, bool wait);

// The process at the other end, as the kernel reports it: the one that connected or listened; for a
// socketpair() the one that made the pair.
//
// Errors: Internal  the kernel does not report it
Result<ucred> PeerOf(int socket);

// A pidfd: readable once the process that connected has ended. Invalid if the system cannot make
// one: before Linux 5.3, for a process of another pid namespace, or if no descriptor is free.
//
// Errors: Unavailable  the process has ended
Result<UniqueFd> ProcessOf(int socket, const ucred& peer);

// Sets how many bytes may be in flight, in each direction, before a sender has to wait.
void SetSocketRoom(int socket);

Status SystemError(const std::string& doing, int error);

}  // namespace headrace::internal
