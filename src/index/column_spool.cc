#include "index/column_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "index/file_io.h"

namespace headrace::internal {

std::size_t ColumnSpool::AddColumn() {
  columns_.emplace_back();
  return columns_.size() - 1;
}

Status ColumnSpool::Open() {
  fd_ = OpenUnnamed(folder_);
  if (fd_) return Status();
  std::string name = folder_ + "/.headrace-spool-XXXXXX";
  fd_ = UniqueFd(mkostemp(name.data(), O_CLOEXEC));
  if (!fd_) return FileError(errno, "creating a temporary file in '" + folder_ + "'");
  unlink(name.c_str());
  return Status();
}

Status ColumnSpool::WriteChunks(Column& column, std::span<const std::byte> chunks) {
  if (!fd_) HEADRACE_RETURN_IF_ERROR(Open());
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd_.get(), file_bytes_, chunks));
  for (std::size_t at = 0; at < chunks.size(); at += kChunkBytes) {
    column.chunks.push_back(file_bytes_ + at);
  }
  file_bytes_ += chunks.size();
  return Status();
}

Status ColumnSpool::Append(std::size_t column, std::span<const std::byte> bytes) {
  HEADRACE_CHECK(column < columns_.size());
  Column& to = columns_[column];
  if (!to.rest.empty() || bytes.size() < kChunkBytes) {
    const std::size_t taken = std::min(bytes.size(), kChunkBytes - to.rest.size());
    to.rest.insert(to.rest.end(), bytes.begin(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (to.rest.size() < kChunkBytes) return Status();
    HEADRACE_RETURN_IF_ERROR(WriteChunks(to, to.rest));
    to.rest.clear();
  }
  const std::size_t whole = bytes.size() / kChunkBytes * kChunkBytes;
  if (whole > 0) HEADRACE_RETURN_IF_ERROR(WriteChunks(to, bytes.first(whole)));
  to.rest.insert(to.rest.end(), bytes.begin() + static_cast<std::ptrdiff_t>(whole), bytes.end());
  return Status();
}

std::uint64_t ColumnSpool::size(std::size_t column) const {
  HEADRACE_CHECK(column < columns_.size());
  return columns_[column].chunks.size() * kChunkBytes + columns_[column].rest.size();
}

Status ColumnSpool::Read(std::size_t column, std::uint64_t offset, std::span<std::byte> to) const {
  HEADRACE_CHECK(offset <= size(column) && to.size() <= size(column) - offset);
  const Column& from = columns_[column];
  while (!to.empty()) {
    const std::uint64_t chunk = offset / kChunkBytes;
    const std::uint64_t skipped = offset % kChunkBytes;
    const bool is_rest = chunk == from.chunks.size();
    const std::uint64_t there = is_rest ? from.rest.size() : kChunkBytes;
    const std::size_t count = std::min<std::uint64_t>(to.size(), there - skipped);
    if (is_rest) {
      std::copy_n(from.rest.begin() + static_cast<std::ptrdiff_t>(skipped), count, to.begin());
    } else {
      HEADRACE_RETURN_IF_ERROR(ReadAll(fd_.get(), from.chunks[chunk] + skipped, to.first(count)));
    }
    offset += count;
    to = to.subspan(count);
  }
  return Status();
}

}  // namespace headrace::internal
