#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "sim/sim_loop.h"
#include "store/byte_store.h"

namespace headrace {

// What becomes of one simulated read.
struct SimRead {
  std::int64_t delay_ns = 0;
  std::optional<Status> error;    // instead of the bytes
  std::uint64_t shift_bytes = 0;  // where in the buffer the bytes come to lie, as widening does
};

// A store in virtual time: the bytes come from another store, which must run `done` inside Read();
// when and whether they do is up to `decide`.
//
// Thread safety: none; a simulation is one thread.
// Shutdown: drained by running the loop; must have no read left when destroyed.
class SimStore final : public ByteStore {
 public:
  static constexpr std::uint64_t kShiftBytesMax = 4096;

  // `decide` is asked once a read, when it is issued.
  SimStore(SimLoop& loop, ByteStore& bytes, std::function<SimRead(const Extent&)> decide);
  ~SimStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override;
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override { return stats_; }
  // The most reads that were under way at once.
  [[nodiscard]] std::uint64_t in_flight_peak() const { return in_flight_peak_; }
  // Reads that must not ask the page cache: a try has just done so.
  [[nodiscard]] std::uint64_t reads_looked() const { return reads_looked_; }

  // From now on some reads need no device: `now` is asked whether to try, then whether that works.
  // If it does, the try has the answer `found`.
  void SetReadNow(std::function<bool()> now, ReadNowAnswer found = ReadNowAnswer::kRead) {
    now_ = std::move(now);
    found_ = found;
  }
  ReadNowAnswer ReadNow(const Extent& extent, std::span<std::byte> dst) override;
  bool HoldsNow(const Extent& /*extent*/) override { return MayReadNow(); }
  bool MayReadNow() override { return now_ && now_(); }

 private:
  void Finish(ReadRequest& request, const SimRead& read, const std::stop_token& stop);

  SimLoop& loop_;
  ByteStore& bytes_;
  const std::function<SimRead(const Extent&)> decide_;
  std::function<bool()> now_;
  ReadNowAnswer found_ = ReadNowAnswer::kRead;
  std::uint64_t in_flight_ = 0;
  std::uint64_t in_flight_peak_ = 0;
  std::uint64_t reads_looked_ = 0;
  StoreStats stats_;
};

}  // namespace headrace
