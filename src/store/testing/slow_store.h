#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/gate.h"
#include "store/byte_store.h"
#include "store/request.h"

namespace headrace {

// Another store, whose answers come later: each is a task of `executor` whose deadline is the due
// time of the answer, in nanoseconds of `clock`. An executor that takes a deadline as a start time,
// as a simulator's can, delays it by that much; any other makes it asynchronous.
//
// Thread safety, shutdown: as ByteStore.
// Ownership: `executor` and `clock` must outlive the store.
class SlowStore final : public ByteStore {
 public:
  // Nanoseconds that reading an extent takes.
  using Latency = std::function<std::int64_t(const Extent&)>;

  SlowStore(std::unique_ptr<ByteStore> inner, Executor& executor, const Clock& clock,
            Latency latency);
  ~SlowStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override { return counters_.Snapshot("slow"); }

 private:
  const std::unique_ptr<ByteStore> inner_;
  Executor& executor_;
  const Clock& clock_;
  const Latency latency_;
  StoreCounters counters_;
  Gate gate_;  // entered once per request
};

}  // namespace headrace
