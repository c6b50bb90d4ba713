#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"

namespace headrace {

inline constexpr std::uint64_t kIpcMessageBytesMax = 64 * kMiB;
inline constexpr std::size_t kIpcFdsMax = 8;

// A message received from another process: bytes, and descriptors, which the receiver owns. Both
// are untrusted: read the bytes with a WireReader, map descriptors with SharedMemory::Map().
struct IpcMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
};

}  // namespace headrace
