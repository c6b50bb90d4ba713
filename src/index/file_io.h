#pragma once

// Files that index/ writes. Internal to index/.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "headrace/status.h"

namespace headrace::internal {

// The status of a failed system call: ResourceExhausted if the disk, a quota or a limit on file
// sizes is reached, else Unavailable. `error` is errno.
Status FileError(int error, const std::string& doing);

// The folder of the file `path`; "." if the path names none.
std::string FolderOf(const std::string& path);

// A file in `folder` without a name, for reading and writing: it vanishes with its last descriptor,
// also if the process is killed. Owns no descriptor if the file system has no such files.
UniqueFd OpenUnnamed(const std::string& folder);

// Writes all of `bytes` at `offset`.
//
// Errors: those of FileError()
Status WriteAll(int fd, std::uint64_t offset, std::span<const std::byte> bytes);

// Fills all of `to` from `offset`.
//
// Errors: Unavailable  the read failed, or the file is shorter
Status ReadAll(int fd, std::uint64_t offset, std::span<std::byte> to);

}  // namespace headrace::internal
