#pragma once

// Reading files by system call, and what the kernel's answers mean.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace headrace {

// The error that `error`, an errno, is to a store's caller; the message names the system call.
Status ErrnoStatus(int error, std::string_view call);

// Fills `dst` from `offset` on, unless the file ends before; returns the bytes read. Tries again
// after EINTR and after short reads. `block` is the alignment in bytes that reads of `fd` must
// have, 1 if none.
//
// Errors: those of ErrnoStatus(), but InvalidArgument for EINVAL: `fd` refuses O_DIRECT
Result<std::size_t> ReadAt(int fd, std::span<std::byte> dst, std::uint64_t offset,
                           std::uint64_t block);

}  // namespace headrace
