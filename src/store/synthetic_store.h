#pragma once

#include <cstddef>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "store/byte_store.h"
#include "store/request.h"

namespace headrace {

// Answers every range with bytes of its own, without I/O: what is left of a run's time is decode,
// transforms and training, the papers' "No I/O" bound.
//
// Every object exists and has any size. A range holds the largest prototype that is not larger,
// then zeros: an encoded image that decoders take. Ranges below the smallest prototype are zeros.
// Answers inside Read().
class SyntheticStore final : public ByteStore {
 public:
  // `prototypes`: encoded samples of different sizes; those that the data set has most of are best.
  explicit SyntheticStore(std::vector<std::string> prototypes);

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override;

 private:
  void Fill(std::span<std::byte> dst) const;

  std::vector<std::string> prototypes_;  // ascending by size
  StoreCounters counters_;
};

}  // namespace headrace
