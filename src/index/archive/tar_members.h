#pragma once

// The members of tars with headers as nearly all have them. Whatever else there is, and damage, is
// left to the caller, who has to know all of the format: this is the fast way through the rest.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

struct TarMembers {
  std::string names;                  // of regular files, each followed by a NUL
  std::vector<std::int64_t> offsets;  // of their bytes in the file
  std::vector<std::int64_t> sizes;    // in bytes
  std::uint64_t next = 0;             // where the next header lies
  bool is_plain = true;               // false: `next` is none that this function reads
};

// Reads headers of the file `fd` from `at` on, of at most `members_max` regular files. Stops before
// a header that is not plain: what is no regular file or folder, has a long name of GNU, a name or
// a size in a pax header, a number that is not octal, a wrong checksum, bytes behind the end of the
// file; before the end mark; and where the file cannot be read.
//
// `file_bytes`: of the file. Reads 64 KiB at a time where members are small, 2 KiB else.
TarMembers ReadTarMembers(int fd, std::uint64_t file_bytes, std::uint64_t at,
                          std::size_t members_max);

}  // namespace headrace
