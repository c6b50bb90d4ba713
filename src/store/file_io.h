#pragma once

// Reads files by system call and translates the kernel's errors.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/status.h"

namespace headrace {

// Seconds of CLOCK_MONOTONIC, some milliseconds late: takes a few ns.
std::uint32_t CoarseSeconds();

// The Status for `error`, an errno; the message names the system call.
Status ErrnoStatus(int error, std::string_view call);

// Fills `dst` from `offset` on, unless the file ends before; returns the bytes read. Tries again
// after EINTR and after short reads. `block` is the alignment in bytes that reads of `fd` need, 1
// if none.
//
// Errors: those of ErrnoStatus(), except InvalidArgument for EINVAL: `fd` refuses O_DIRECT
Result<std::size_t> ReadAt(int fd, std::span<std::byte> dst, std::uint64_t offset,
                           std::uint64_t block);

}  // namespace headrace
