#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/executor.h"
#include "base/gate.h"
#include "base/ids.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/status.h"
#include "store/byte_store.h"
#include "store/decoded/coded_catalog.h"
#include "store/file_table.h"
#include "store/request.h"

namespace headrace {

struct DecodedStoreOptions {
  // Decoded objects that are kept for further reads. The one used last is kept whatever its size.
  std::uint64_t kept_bytes_max = std::uint64_t{256} << 20;
  std::string note = {};  // for stats()
};

// Reads ranges of what compressed files decode to. A file is read and decoded whole, once for all
// requests that wait for it, and kept until others need the memory. So blocks that are whole
// objects are decoded once each, and samples in random order as often as their objects are not
// kept.
//
// Memory: kept_bytes_max, or the largest object; and for each thread of the executor an object with
//         its file's bytes while it is decoded.
// Thread safety, shutdown: as ByteStore.
// Ownership: `objects` and `executor` outlive the store. Its tasks read and decode.
class DecodedStore final : public ByteStore {
 public:
  // `root`: see CodedCatalog.
  DecodedStore(const FileCatalog& objects, std::string root, Executor& executor,
               DecodedStoreOptions options = {});
  ~DecodedStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override;
  [[nodiscard]] StoreStats stats() const override;

 private:
  struct Waiter {
    ReadRequest request;
    std::stop_token stop;
  };
  using Decoded = std::shared_ptr<const Buffer>;
  struct Object {
    std::vector<Waiter> waiters;  // for the decode in progress
    Decoded decoded;              // null: not kept
    std::list<ObjectId>::iterator recent;
    std::uint64_t bytes = 0;
  };

  void Wait(Waiter waiter) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Decode(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  Result<Decoded> DecodeNow(const CodedFile& file, ObjectId id);
  std::vector<Waiter> TakeWaiters(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Keep(ObjectId id, const Decoded& decoded, std::uint64_t bytes)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Answer(Waiter& waiter, const Result<Decoded>& decoded, const std::string& path);

  const CodedCatalog catalog_;
  Executor& executor_;
  const DecodedStoreOptions options_;
  FileTable files_;
  StoreCounters counters_;

  mutable Mutex mutex_;
  std::unordered_map<ObjectId, Object> objects_ HEADRACE_GUARDED_BY(mutex_);
  std::list<ObjectId> recent_ HEADRACE_GUARDED_BY(mutex_);  // kept ones, latest first
  std::uint64_t kept_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;

  Gate gate_;  // entered once per request
};

}  // namespace headrace
