#pragma once

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
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "store/byte_store.h"
#include "store/decoded/object_decoder.h"
#include "store/request.h"

namespace headrace {

struct DecodedStoreOptions {
  // Decoded objects that are kept for further reads. The one used last is kept whatever its size.
  std::uint64_t kept_bytes_max = std::uint64_t{256} << 20;
  // Objects that are being decoded. One is decoded whatever its size.
  std::uint64_t decoding_bytes_max = std::uint64_t{128} << 20;
  std::string name = {};  // for stats()
  std::string note = {};  // likewise
};

// Reads ranges of what objects decode to. An object is decoded whole, once for all requests that
// wait for it, and kept until others need the memory. So blocks that are whole objects are decoded
// once each. In random order an object is decoded again whenever it is not kept.
//
// Memory: kept_bytes_max, or the largest object; decoding_bytes_max, or the largest object; and
// what
//         decoders need for the objects that they decode.
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
  };

  void Wait(Waiter waiter) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void StartQueued() HEADRACE_LOCKS_REQUIRED(mutex_);
  void Decode(ObjectId id, std::uint64_t bytes) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void AnswerAll(ObjectId id, const Result<DecodedBytes>& decoded) HEADRACE_LOCKS_EXCLUDED(mutex_);
  Result<DecodedBytes> DecodeNow(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  bool IsWanted(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  std::vector<Waiter> TakeWaiters(ObjectId id) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Keep(ObjectId id, const DecodedBytes& decoded) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Answer(Waiter& waiter, const Result<DecodedBytes>& decoded);

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

  Gate gate_;  // entered once per request
};

}  // namespace headrace
