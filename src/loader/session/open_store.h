#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/executor.h"
#include "base/status.h"
#include "index/index.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/store_table.h"

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
  IndexCatalog(std::shared_ptr<const Index> index, FileRemedies remedies)
      : index_(std::move(index)), remedies_(std::move(remedies)) {}
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;
  [[nodiscard]] const FileRemedies& remedies() const override { return remedies_; }

 private:
  const std::shared_ptr<const Index> index_;
  const FileRemedies remedies_;
};

struct OpenStoreOptions {
  std::string io = std::string(kAnyStore);  // a name of Stores(), or kAnyStore
  FileRemedies remedies;
  PageCache page_cache = PageCache::kUsed;
  int reads_at_once = 0;  // 0: as many as keep storage busy
};

// A store, and what it needs to live as long.
class OpenedStore {
 public:
  OpenedStore();
  ~OpenedStore();
  OpenedStore(OpenedStore&&) noexcept;
  OpenedStore& operator=(OpenedStore&&) noexcept;

  [[nodiscard]] ByteStore& store() const { return *parts_.store; }

 private:
  friend Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index,
                                       const OpenStoreOptions& options);

  std::unique_ptr<FileCatalog> catalog_;
  StoreParts parts_;
};

// Reads `extents` to `dst`, one after the other, and waits for them; checks the objects of those
// that are empty. Now and then asks `keep_going`, if given; when it says false, returns Cancelled
// without waiting for the reads, which the destructor of the store then does.
//
// Errors: those of reading, ResourceExhausted, Cancelled
Status ReadExtents(ByteStore& store, std::span<const Extent> extents, std::span<std::byte> dst,
                   const std::function<bool()>& keep_going = nullptr);

// Reads a whole extent, and waits for it.
//
// Errors: those of ReadExtents()
Result<std::string> ReadWhole(ByteStore& store, const Extent& extent);

// Opens the store that reads the objects of `index`.
//
// Errors: those of OpenStoreOf(), and of reading a sample where the store asks for some
Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index,
                              const OpenStoreOptions& options);

}  // namespace headrace
