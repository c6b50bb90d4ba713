#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <vector>

#include "base/gate.h"
#include "store/byte_store.h"
#include "store/request.h"

namespace headrace {

// Immediately repeats reads that another store answered with Unavailable. Other errors, and
// Unavailable at the last try, go to the caller.
//
// Thread safety, shutdown: as ByteStore. The inner store must allow Read() from inside a `done`.
// stats(): reads, bytes and failures are the caller's; the rest, and the name, come from `inner`,
// and each further try counts as one of `retries`.
class RetryStore final : public ByteStore {
 public:
  // `tries_max` includes the first try: at least 1.
  RetryStore(std::unique_ptr<ByteStore> inner, int tries_max);
  ~RetryStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override;
  [[nodiscard]] Status CheckOpen() override { return inner_->CheckOpen(); }
  [[nodiscard]] bool HasOpen() override { return inner_->HasOpen(); }
  ReadNowAnswer ReadNow(const Extent& extent, std::span<std::byte> dst) override;
  void ReadAllNow(std::span<NowRead> reads) override;
  bool HoldsNow(const Extent& extent) override;
  bool MayReadNow() override { return inner_->MayReadNow(); }
  [[nodiscard]] StoreStats stats() const override;

 private:
  struct Attempt {
    ReadRequest request;
    std::stop_token stop;
    int tries = 1;  // begun
  };

  ReadRequest Try(std::shared_ptr<Attempt> attempt);
  void Take(std::shared_ptr<Attempt> attempt, Result<std::span<std::byte>> result);

  const std::unique_ptr<ByteStore> inner_;
  const int tries_max_;
  StoreCounters counters_;
  Gate gate_;  // entered once per request
};

}  // namespace headrace
