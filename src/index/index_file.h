#pragma once

// Writes the file of an index, whatever its columns come from. Internal to index/.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/index.h"
#include "headrace/status.h"
#include "index/atomic_file.h"
#include "index/index_format.h"

namespace headrace::internal {

// The small parts of an index, and the sizes of the large ones. Valid by index_rules.h.
struct IndexOutline {
  std::uint64_t sample_count = 0;
  std::uint64_t object_count = 0;
  std::uint64_t block_count = 0;
  std::uint64_t name_bytes = 0;  // of all objects' names
  // Bytes of the values of each inline field that is variable, in the order of the fields.
  std::vector<std::uint64_t> inline_values = {};
  std::vector<FieldInfo> fields;
  std::string root;
  std::vector<Attribute> attributes;
};

// Takes the next bytes of a section.
using TakeBytes = std::function<Status(std::span<const std::byte>)>;

// Passes the bytes of a section with entries (kinds 4 to 11) to `take`, from first to last, in
// pieces of any size: `section.size` bytes in all.
using GiveSection = std::function<Status(const Section& section, const TakeBytes& take)>;

// Appends a whole index to the empty `file`; calls `give` once for each section, in their order.
// Computes the checksums as it writes, so that memory does not grow with the samples.
//
// Errors: InvalidArgument    the file would exceed 2^63 bytes
//         those of AtomicFile and `give`
Status WriteIndexFile(const IndexOutline& outline, const GiveSection& give, AtomicFile& file);

}  // namespace headrace::internal
