#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "store/byte_store.h"
#include "store/request.h"

namespace headrace {

// Probabilities of faults for each read, in [0, 1].
struct FaultyStoreOptions {
  std::uint64_t seed = 0;
  double unavailable = 0;  // answered with Unavailable
  double short_read = 0;   // answered with DataLoss
  double flipped = 0;      // answered with one bit wrong, as success
  double late = 0;         // answered after all earlier and concurrent requests, last first
};

// Another store, with faults. Which reads fail depends only on the seed, the range, and how often
// it was read before, so that a run repeats whatever its threads do.
//
// Thread safety, shutdown: as ByteStore.
class FaultyStore final : public ByteStore {
 public:
  FaultyStore(std::unique_ptr<ByteStore> inner, FaultyStoreOptions options);
  ~FaultyStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override;

 private:
  struct Faults {
    bool unavailable = false;
    bool short_read = false;
    bool late = false;
    std::optional<std::uint64_t> flipped_bit;
  };
  struct Answered {
    std::shared_ptr<ReadRequest> request;
    Result<std::span<std::byte>> result;
  };

  Faults Draw(const Extent& extent) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Take(Answered answered, const Faults& faults) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Give(Answered answered);

  const std::unique_ptr<ByteStore> inner_;
  const FaultyStoreOptions options_;
  StoreCounters counters_;
  Gate gate_;  // entered once per request

  Mutex mutex_;
  std::size_t running_ HEADRACE_GUARDED_BY(mutex_) = 0;  // with `inner_`
  std::vector<Answered> late_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::uint64_t> times_
      HEADRACE_GUARDED_BY(mutex_);  // reads of (object, offset, size) so far
};

}  // namespace headrace
