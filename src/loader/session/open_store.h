#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/executor.h"
#include "base/status.h"
#include "index/index.h"
#include "loader/config/io_choice.h"
#include "store/byte_store.h"
#include "store/file_table.h"

namespace headrace {

// Whether the page cache may be asked first for what is read past it otherwise.
enum class PageCache : std::uint8_t {
  kUsed = 0,
  kAvoided = 1,  // whole files are read past it too: to measure storage, not memory
};

// Whether the samples of `index` are ranges of large files; else each is about a file of its own.
bool ReadsRanges(const Index& index);

// The files of an index, as stores see them.
class IndexCatalog final : public FileCatalog {
 public:
  explicit IndexCatalog(std::shared_ptr<const Index> index) : index_(std::move(index)) {}
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;

 private:
  const std::shared_ptr<const Index> index_;
};

// A store, and what it needs to live as long.
class OpenedStore {
 public:
  OpenedStore();
  ~OpenedStore();
  OpenedStore(OpenedStore&&) noexcept;
  OpenedStore& operator=(OpenedStore&&) noexcept;

  [[nodiscard]] ByteStore& store() const { return *store_; }

 private:
  friend Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index, IoChoice choice,
                                       PageCache page_cache);

  std::unique_ptr<FileCatalog> catalog_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ByteStore> store_;
};

// Reads a whole extent, and waits for it.
//
// Errors: those of reading, ResourceExhausted
Result<std::string> ReadWhole(ByteStore& store, const Extent& extent);

// Opens the store that reads the objects of `index`.
//
// Errors: FailedPrecondition, ResourceExhausted  kUring, and io_uring cannot be used
//         those of reading a sample              kSynthetic, which reads some
Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index, IoChoice choice,
                              PageCache page_cache = PageCache::kUsed);

}  // namespace headrace
