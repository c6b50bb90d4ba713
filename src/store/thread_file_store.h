#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/gate.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/page_cache.h"
#include "store/request.h"

namespace headrace {

struct ThreadFileStoreOptions {
  // Reads past the page cache if the file system supports it. Needs room for widening in buffers.
  bool direct = false;
  bool page_cache = true;              // with `direct`: check the page cache first
  std::size_t descriptors_max = 0;     // kept open; 0: see FileTableOptions
  std::uint64_t direct_alignment = 0;  // bytes; 0: as the file system reports
  std::string note = {};               // for stats(): why this store was chosen
};

// Reads files with one system call a range, each a task of an executor: for many small files, and
// where io_uring is missing. Works everywhere.
//
// Thread safety, shutdown: as ByteStore.
// Ownership: `catalog` and `executor` must outlive the store. Use a separate executor for reads, as
// its tasks block; 32 threads or more keep an SSD busy.
class ThreadFileStore final : public ByteStore {
 public:
  ThreadFileStore(const FileCatalog& catalog, Executor& executor,
                  ThreadFileStoreOptions options = {});
  ~ThreadFileStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override;
  [[nodiscard]] Status CheckOpen() override { return files_.CheckOpen(); }
  [[nodiscard]] bool HasOpen() override { return files_.HasOpen(); }
  ReadNowAnswer ReadNow(const Extent& extent, std::span<std::byte> dst) override;
  void ReadAllNow(std::span<NowRead> reads) override;
  bool HoldsNow(const Extent& extent) override;
  bool MayReadNow() override;
  [[nodiscard]] StoreStats stats() const override;

 private:
  using Answer = Result<std::span<std::byte>>;

  Answer ReadNow(const ReadRequest& request, const std::stop_token& stop);
  Answer ReadBuffered(const OpenFile& file, const ReadRequest& request);
  Answer ReadDirect(OpenFile& file, const ReadRequest& request);

  Executor& executor_;
  const ThreadFileStoreOptions options_;
  FileTable files_;
  PageCacheReader page_cache_;
  StoreCounters counters_;
  Gate gate_;  // entered once per request
};

}  // namespace headrace
