#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/unique_fd.h"

namespace headrace {

// Bytes that travel in a memfd of their own: more than a socket holds, or than a message may have.
// Nobody can change them once they are sealed, so they are read as they were sent.
//
// Thread safety: any thread. Ownership: descriptors that are given stay the caller's.

// Errors: ResourceExhausted  no memory or descriptor
Result<UniqueFd> MakeSealed(std::span<const std::byte> bytes);

// How many bytes lie in a memfd that was received. Nothing is taken on trust: there are no more
// than its sender had memory for.
//
// Errors: DataLoss  not a sealed memfd, or one with holes
Result<std::uint64_t> SealedBytes(int fd);

// The first bytes of it, as many as `to` has: SealedBytes() at most.
//
// Errors: Internal  the system does not give them
Status ReadSealed(int fd, std::span<std::byte> to);

}  // namespace headrace
