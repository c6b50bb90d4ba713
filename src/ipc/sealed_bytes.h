#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "headrace/status.h"

namespace headrace {

// Bytes that travel in a memfd of their own: more than a socket, or a message, may hold. They
// cannot change once they are sealed, so they are read as they were sent.
//
// Thread safety: any thread.
// Ownership: the caller keeps its descriptors.

// Errors: ResourceExhausted  no memory or descriptor
Result<UniqueFd> MakeSealed(std::span<const std::byte> bytes);

// The size of the bytes in a received memfd. Untrusted: checks that the sender really allocated
// that much.
//
// Errors: DataLoss  not a sealed memfd, or one with holes
Result<std::uint64_t> SealedBytes(int fd);

// Reads its first bytes into `to`, whose size is at most SealedBytes().
//
// Errors: Internal  the system does not return them
Status ReadSealed(int fd, std::span<std::byte> to);

}  // namespace headrace
