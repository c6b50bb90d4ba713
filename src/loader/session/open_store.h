#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/executor.h"
#include "headrace/index.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/object_memory.h"
#include "store/share/read_share.h"
#include "store/store_table.h"

namespace headrace {

// Whether a store may look into the page cache before it reads past it.
enum class PageCache : std::uint8_t {
  kUsed = 0,
  kAvoided = 1,  // whole files are read past it, too: to measure storage, not memory
};

// True if the samples of `index` are ranges of large files; false if each sample is about one file.
bool ReadsRanges(const Index& index);

// Gives stores the files of an index. Of a file that is not there because its home is another node,
// the error names the home.
class IndexCatalog final : public FileCatalog {
 public:
  IndexCatalog(std::shared_ptr<const Index> index, FileRemedies remedies)
      : index_(std::move(index)), remedies_(std::move(remedies)) {}
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;
  [[nodiscard]] const FileRemedies& remedies() const override { return remedies_; }
  [[nodiscard]] std::string RemedyOfMissing(const std::string& path) const override;

 private:
  const std::shared_ptr<const Index> index_;
  const FileRemedies remedies_;
  mutable std::once_flag homes_counted_;
  mutable std::uint32_t home_count_ = 1;  // once counted
};

struct OpenStoreOptions {
  std::string io = std::string(kAnyStore);  // a name of Stores(), or kAnyStore
  FileRemedies remedies;
  PageCache page_cache = PageCache::kUsed;
  int reads_at_once = 0;  // 0: enough to keep storage busy
  DecodedLimits decoded;  // if the store decodes objects as a whole
  RequestLimits requests = {};
  std::shared_ptr<ReadShare> share;  // with other jobs, if it returns stored bytes; null: none
};

// A store and the objects that must live as long as it.
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

// Reads `extents` to `dst`, one after the other, and waits for them. For an empty extent, checks
// its object. Calls `keep_going`, if given, now and then; if it returns false, returns Cancelled
// without waiting for the reads: the store's destructor waits for them.
//
// Errors: those of reading, ResourceExhausted, Cancelled
Status ReadExtents(ByteStore& store, std::span<const Extent> extents, std::span<std::byte> dst,
                   const std::function<bool()>& keep_going = nullptr);

// Reads an extent and waits for it.
//
// Errors: those of ReadExtents()
Result<std::string> ReadWhole(ByteStore& store, const Extent& extent);

// Opens the store that reads the objects of `index`.
//
// Errors: those of OpenStoreOf(), and of reading a sample if the store reads some when it opens
Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index,
                              const OpenStoreOptions& options);

}  // namespace headrace
