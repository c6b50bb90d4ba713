#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <stop_token>
#include <vector>

#include "sim/job/shared_rate.h"
#include "sim/sim_loop.h"
#include "store/byte_store.h"

namespace headrace {

// Storage in virtual time as one node sees it: some threads read, in the order of the requests, as
// fast as `rate` says. Reads bring no bytes: buffers stay as they are.
//
// Thread safety: none; a simulation is one thread.
// Ownership: `loop` and `rate` are the caller's and outlive it.
class TimedStore final : public ByteStore {
 public:
  struct Options {
    std::uint32_t node = 0;  // a user of the rate
    std::uint32_t threads = 1;
    std::int64_t latency_ns = 0;  // of each read, before its bytes come
    double scale = 1;             // bytes that one byte of an extent stands for
    double least_bytes = 0;       // charged for each read, in bytes of the job
  };

  TimedStore(SimLoop& loop, SharedRate& rate, const Options& options)
      : loop_(loop), rate_(rate), options_(options) {
    stats_.name = "simulated";
  }

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override { return stats_; }

 private:
  void Begin(ReadRequest request);
  void Transfer(const std::shared_ptr<ReadRequest>& request);

  SimLoop& loop_;
  SharedRate& rate_;
  const Options options_;
  std::uint32_t busy_ = 0;  // threads
  std::deque<ReadRequest> waiting_;
  StoreStats stats_;
};

}  // namespace headrace
