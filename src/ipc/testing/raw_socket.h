#pragma once

// What a process that does not use ipc/ can do to one that does.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "ipc/address.h"

namespace headrace {

inline std::string UniqueSocketName() {
  static int count = 0;
  return "headrace-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

inline std::size_t OpenFds() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(fds), end(fds)));
}

inline std::vector<std::byte> PacketOf(std::uint32_t bytes, std::uint16_t fds, std::uint16_t kind,
                                       std::size_t payload_bytes) {
  std::vector<std::byte> packet(8 + payload_bytes);
  std::memcpy(packet.data(), &bytes, 4);
  std::memcpy(packet.data() + 4, &fds, 2);
  std::memcpy(packet.data() + 6, &kind, 2);
  return packet;
}

// Sends the packet as it is, in one piece.
inline void SendRaw(int socket, std::vector<std::byte> packet, const std::vector<int>& fds) {
  constexpr std::size_t kFdsMax = 64;
  iovec part{packet.data(), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kFdsMax * sizeof(int))> control{};
  ASSERT_LE(fds.size(), kFdsMax);
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
}

inline UniqueFd RawSocket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

inline bool RawConnect(int socket, const std::string& name) {
  const auto address = internal::AbstractAddress::Make(name).value();
  return ::connect(socket, address.get(), address.size) == 0;
}

inline bool RawListen(int socket, const std::string& name, int backlog) {
  const auto address = internal::AbstractAddress::Make(name).value();
  return ::bind(socket, address.get(), address.size) == 0 && ::listen(socket, backlog) == 0;
}

// Another user; only root can become one.
inline constexpr uid_t kNobody = 65534;

}  // namespace headrace
