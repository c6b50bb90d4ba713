#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "store/byte_store.h"
#include "store/request.h"

namespace headrace {

// Another store that reads only on command: for tests of one order of events.
//
// Thread safety: as ByteStore.
// Shutdown: the destructor releases waiting requests.
class GatedStore final : public ByteStore {
 public:
  explicit GatedStore(std::unique_ptr<ByteStore> inner) : inner_(std::move(inner)) {}
  ~GatedStore() override;

  // The waiting requests, in the order of arrival.
  [[nodiscard]] std::vector<Extent> waiting() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Reads waiting()[index].
  void Release(std::size_t index) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void ReleaseAll() HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Answers waiting()[index] with an error instead.
  void Fail(std::size_t index, const Status& status) HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override { return counters_.Snapshot("gated"); }

 private:
  struct Waiting {
    std::shared_ptr<ReadRequest> request;
    std::stop_token stop;
  };

  Waiting TakeOut(std::size_t index) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Pass(Waiting waiting);
  void Give(ReadRequest& request, Result<std::span<std::byte>> result);

  const std::unique_ptr<ByteStore> inner_;
  StoreCounters counters_;
  Gate gate_;  // entered once per request
  mutable Mutex mutex_;
  std::vector<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
