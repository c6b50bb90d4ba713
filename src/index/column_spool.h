#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "headrace/status.h"

namespace headrace::internal {

// Columns of bytes that grow side by side and are read one after the other: in memory as long as
// they are short, else in chunks in one temporary file.
//
// Thread safety: one thread at a time.
// Memory: at most kChunkBytes a column, and 8 bytes for each chunk in the file.
// Shutdown: the file has no name, so it vanishes with this object, or with the process.
class ColumnSpool {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{64} * 1024;

  // The file will be in `folder`. Opens nothing.
  explicit ColumnSpool(std::string folder) : folder_(std::move(folder)) {}

  // Returns the number of a new, empty column.
  std::size_t AddColumn();

  // Adds `bytes` at the end of the column. After an error the column is unspecified.
  //
  // Errors: ResourceExhausted  the disk, a quota or a limit on file sizes is reached
  //         Unavailable        any other failure to write
  Status Append(std::size_t column, std::span<const std::byte> bytes);

  // Bytes of the column.
  [[nodiscard]] std::uint64_t size(std::size_t column) const;

  // Fills `to` with the column's bytes from `offset`; they must exist.
  //
  // Errors: Unavailable  the file cannot be read
  Status Read(std::size_t column, std::uint64_t offset, std::span<std::byte> to) const;

 private:
  struct Column {
    std::vector<std::uint64_t> chunks;  // where in the file each full chunk lies
    std::vector<std::byte> rest;        // fewer bytes than a chunk
  };

  Status Open();
  Status WriteChunks(Column& column, std::span<const std::byte> chunks);

  const std::string folder_;
  UniqueFd fd_;
  std::uint64_t file_bytes_ = 0;
  std::vector<Column> columns_;
};

}  // namespace headrace::internal
