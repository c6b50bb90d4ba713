#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "headrace/ids.h"
#include "headrace/index_writer.h"
#include "headrace/status.h"

namespace headrace {

// Writes an index whose columns arrive in pieces of any size: WriteIndex() without the contents in
// memory. The file is the same, byte for byte.
//
// Columns may grow in any order; in Publish() each must have one entry for each sample. An extent
// lies in an object that was added before it.
//
// Thread safety: one thread at a time.
// Memory: 64 KiB a column (three or fewer a field, four others), 8 bytes for each 64 KiB of them,
// the
//         attributes. It does not grow with samples or objects.
// Disk: until Publish() ends, up to twice the index, in the folder of `path`.
// Shutdown: the destructor leaves nothing on the disk, unless Publish() succeeded; neither does a
//           killed process (atomic_file.h has the exceptions).
// Errors of all calls: InvalidArgument    a rule is violated; the message names the entry
//                      ResourceExhausted  the disk is full
//                      Unavailable        any other failure to read or write
// After an error every call returns that error: a part of what was given may have been added.
class IndexBuilder {
 public:
  // `root`: see IndexContents. Creates nothing at `path` before Publish().
  static Result<std::unique_ptr<IndexBuilder>> Create(std::string path, std::string root);

  ~IndexBuilder();
  IndexBuilder(const IndexBuilder&) = delete;
  IndexBuilder& operator=(const IndexBuilder&) = delete;

  // Returns the position of the field.
  Result<std::size_t> AddField(const FieldInfo& field);

  // Objects are numbered in the order of their addition, from 0.
  Status AddObjects(std::span<const IndexContents::Object> objects);

  // Of a field that is not inline.
  Status AddExtents(std::size_t field, std::span<const Extent> extents);
  // Of an inline field: whole values, end to end.
  Status AddInlineValues(std::size_t field, std::span<const std::byte> values);
  // The same of a field whose values differ in length: `lengths` has the bytes of each.
  Status AddInlineValues(std::size_t field, std::span<const std::byte> values,
                         std::span<const std::uint64_t> lengths);
  // Of a field with decoded sizes. Publish() compares them with the extents.
  Status AddDecodedSizes(std::size_t field, std::span<const std::uint64_t> sizes);
  // Of a field with checksums.
  Status AddChecksums(std::size_t field, std::span<const std::uint64_t> checksums);

  // Publish() checks them.
  Status AddBlocks(std::span<const BlockInfo> blocks);

  Status SetAttribute(std::string key, std::string value);

  [[nodiscard]] std::uint64_t object_count() const;
  // Entries of the field so far.
  [[nodiscard]] std::uint64_t sample_count(std::size_t field) const;

  // Checks what only the whole shows, and writes the index: to an unnamed file, synced, then put in
  // the place of `path`. Call once, last. `may_go_on` is called from time to time.
  //
  // Errors: Cancelled  `may_go_on` returned false
  Status Publish(const std::function<bool()>& may_go_on = {});

 private:
  class Impl;
  explicit IndexBuilder(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
