#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace {

// The contents of an index, column by column, for builders to fill. Plain data.
struct IndexContents {
  struct Field {
    FieldInfo info;
    std::vector<Extent> extents;  // if not inline: one per sample
    // If inline: all values, end to end; if they differ in length, where each of them ends.
    std::vector<std::byte> inline_values;
    std::vector<std::uint64_t> inline_ends;
    std::vector<std::uint64_t> decoded_sizes;  // one per sample if info.has_decoded_sizes
    std::vector<std::uint64_t> checksums;      // one per sample if info.has_checksums
  };
  struct Object {
    std::string name;  // below `root`
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
  };

  std::uint64_t sample_count = 0;
  std::vector<Field> fields;
  std::vector<Object> objects;
  std::vector<BlockInfo> blocks;  // by first_sample, covering every sample; or empty
  std::string root;               // absolute; or "." for the folder of the index file
  std::vector<std::pair<std::string, std::string>> attributes;
};

// Writes `contents` to `path`: to a temporary file beside it, synced, then renamed over it. A
// reader sees the old file or the new one, never a part. On an error no temporary file remains.
//
// Thread safety: may be called from any thread; for one path by one at a time.
// Limits: objects below 2^40, offsets below 2^48, lengths below 2^40 bytes.
// Errors: InvalidArgument    `contents` are not valid; the message names the entry
//         ResourceExhausted  the disk is full
//         Unavailable        any other failure to write
Status WriteIndex(const IndexContents& contents, const std::string& path);

}  // namespace headrace
