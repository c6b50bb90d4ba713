#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/executor.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/decoded/object_decoder.h"
#include "store/object_memory.h"
#include "store/request.h"

namespace headrace {

struct DecodedStoreOptions {
  DecodedLimits limits = {};
  std::string name = {};  // for stats()
  std::string note = {};  // likewise
};

// Reads ranges of what objects decode to. An object is decoded whole, once for all requests that
// wait for it, and kept until others need the memory. So blocks that are whole objects are decoded
// once each. In random order an object is decoded again whenever it is not kept.
//
// An empty range decodes nothing.
//
// Memory: what is kept, up to kept_bytes_max or one object; and what is being decoded, or copied to
//         those that waited, up to decoding_bytes_max or one object. What decoders need counts.
// Thread safety, shutdown: as ByteStore.
// Ownership: `executor` outlives the store. Its tasks decode.
class DecodedStore final : public ByteStore {
 public:
  DecodedStore(std::unique_ptr<ObjectDecoder> decoder, Executor& executor,
               DecodedStoreOptions options = {});
  ~DecodedStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override {
    return decoder_->CheckObject(object);
  }
  [[nodiscard]] StoreStats stats() const override;

 private:
  struct Waiter {
    ReadRequest request;
    std::stop_token stop;
  };
  struct Object {
    std::vector<Waiter> waiters;  // for the decode in progress
    std::optional<DecodedBytes> kept;
    std::list<ObjectId>::iterator recent;
    int copying = 0;  // tasks that copy from `kept`, which is not forgotten meanwhile
  };
  // What a task did with the requests that waited for its object.
  struct Answers {
    std::size_t given = 0;
    std::vector<Waiter> again;  // those that have to wait for another task
  };

  void Wait(Waiter waiter) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void StartQueued() HEADRACE_LOCKS_REQUIRED(mutex_);
  void Decode(ObjectId id, std::uint64_t bytes) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void CopyKept(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  Answers AnswerAll(ObjectId id, const Result<DecodedBytes>& decoded)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void AnswerEmpty(Waiter& waiter);
  void Leave(std::size_t requests);
  Result<DecodedBytes> DecodeNow(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  bool IsWanted(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  std::vector<Waiter> TakeWaiters(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Keep(ObjectId id, const DecodedBytes& decoded) HEADRACE_LOCKS_EXCLUDED(mutex_);
  std::vector<DecodedBytes> Forget(std::uint64_t bytes) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Answer(Waiter& waiter, const Result<DecodedBytes>& decoded);
  void CountHeld() HEADRACE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<ObjectDecoder> decoder_;
  Executor& executor_;
  const DecodedStoreOptions options_;
  StoreCounters counters_;

  mutable Mutex mutex_;
  std::unordered_map<ObjectId, Object> objects_ HEADRACE_GUARDED_BY(mutex_);
  std::list<ObjectId> recent_ HEADRACE_GUARDED_BY(mutex_);  // kept ones, latest first
  std::uint64_t kept_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::deque<ObjectId> queued_ HEADRACE_GUARDED_BY(mutex_);  // to be decoded, first come first
  std::size_t decoding_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t decoding_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> held_bytes_ = 0;  // kept and decoding
  std::atomic<std::uint64_t> held_bytes_peak_ = 0;

  Gate gate_;  // entered once per request
};

}  // namespace headrace
