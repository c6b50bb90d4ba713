#pragma once

// benchmarks/roofline/ measures what this machine's storage and memory give to the engine's own
// buffers, open flags and queue depths: the bound that other benchmarks compare a loader with.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "headrace/status.h"
#include "store/file_table.h"

namespace headrace {

// Fills a new file with `bytes` random bytes, which cannot be compressed, and writes them to the
// device. The file appears when it is complete.
//
// Errors: those of the file system
Status MakeRandomFile(const std::string& path, std::uint64_t bytes);

// The files that are read, and whether the page cache holds them.
//
// Thread safety: const calls may be concurrent.
class ReadFiles final : public FileCatalog {
 public:
  // Errors: NotFound            no such file
  //         FailedPrecondition  a file cannot be opened
  static Result<std::unique_ptr<ReadFiles>> Open(const std::vector<std::string>& paths);

  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;

  [[nodiscard]] std::size_t size() const { return files_.size(); }
  [[nodiscard]] const FileInfo& info(std::size_t number) const { return files_[number].info; }
  [[nodiscard]] std::uint64_t bytes() const;

  // Removes the files from the page cache, and checks that no page is left.
  //
  // Errors: FailedPrecondition  pages are left, or the system cannot tell
  Status MakeCold() const;
  // Errors: FailedPrecondition  the page cache holds pages of the files, or the system cannot tell
  [[nodiscard]] Status CheckCold() const;

  // Reads the files, and checks that the page cache holds all of them.
  //
  // Errors: FailedPrecondition  it does not, or the system cannot tell
  //         those of reading
  Status MakeWarm() const;
  // Errors: FailedPrecondition  the page cache does not hold all pages, or the system cannot tell
  [[nodiscard]] Status CheckWarm() const;

 private:
  struct File {
    FileInfo info;
    UniqueFd fd;
  };

  explicit ReadFiles(std::vector<File> files) : files_(std::move(files)) {}

  // Pages of all files, and those of them in the page cache.
  struct Pages {
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
  };
  [[nodiscard]] Result<Pages> CountPages() const;
  Status ReadAll() const;

  const std::vector<File> files_;
};

}  // namespace headrace
