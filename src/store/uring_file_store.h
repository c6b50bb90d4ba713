#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/executor.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/request.h"

namespace headrace {

struct UringFileStoreOptions {
  int queue_depth = 256;  // reads in flight, [1, 4096]

  // Reads past the page cache if the file system supports it; with `page_cache`, checks the page
  // cache first.
  bool direct = true;
  bool page_cache = true;

  std::size_t descriptors_max = 0;     // kept open; 0: see FileTableOptions
  std::uint64_t direct_alignment = 0;  // bytes; 0: as the file system reports
  std::string note = {};               // for stats(): why this store was chosen
};

// Reads ranges of large files through one io_uring: many reads in flight, few system calls, one
// thread, which submits and reaps. It also opens files, so for many small ones use threads.
//
// Requests beyond `queue_depth` wait in the store, in order; callers bound their number. A `done`
// runs on the store's thread and delays all other reads: it should only pass the result on.
//
// Thread safety, shutdown: as ByteStore.
// Ownership: `catalog` and `executor` must outlive the store. It occupies one thread of the
// executor as long as it lives.
// Fork: a child must not read (FailedPrecondition); it may destroy the store, which then leaves
// everything to the parent.
class UringFileStore final : public ByteStore {
 public:
  // Whether this process may use io_uring; the message gives the reason if not.
  //
  // Errors: FailedPrecondition  forbidden (EPERM: containers, sysctl) or not in the kernel (ENOSYS)
  //         ResourceExhausted   no memory for it (ENOMEM: ulimit -l), or no descriptors
  static Status Probe();

  // Errors: those of Probe()
  //         InvalidArgument  queue_depth
  static Result<std::unique_ptr<UringFileStore>> Open(const FileCatalog& catalog,
                                                      Executor& executor,
                                                      UringFileStoreOptions options = {});

  ~UringFileStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override;
  [[nodiscard]] Status CheckOpen() override;
  [[nodiscard]] bool HasOpen() override;
  ReadNowAnswer ReadNow(const Extent& extent, std::span<std::byte> dst) override;
  void ReadAllNow(std::span<NowRead> reads) override;
  bool HoldsNow(const Extent& extent) override;
  bool MayReadNow() override;
  [[nodiscard]] StoreStats stats() const override;

 private:
  class Loop;

  UringFileStore(UringFileStoreOptions options, std::unique_ptr<Loop> loop);
  [[nodiscard]] bool Forked() const;
  [[nodiscard]] Status BelongsToParent() const;

  const UringFileStoreOptions options_;
  const pid_t pid_;  // of the process that runs the loop
  std::unique_ptr<Loop> loop_;
};

}  // namespace headrace
