#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

// How long to wait for an attempt before a second one is sent: a multiple of a high quantile of the
// recent waits (Dean and Barroso, "The tail at scale", 2013, who wait for the 95th percentile).
// Until enough waits are known, a fixed large bound.
//
// Thread safety: none; one thread drives.
// Cost: 0.1 us an Add() on average. Memory: kSamples waits.
class HedgeDelay {
 public:
  static constexpr std::size_t kSamples = 512;     // the quantile is of the last so many
  static constexpr std::size_t kSamplesMin = 100;  // below: Options::unknown_ns
  static constexpr std::size_t kEvery = 32;        // the quantile is computed after so many more

  struct Options {
    double quantile = 0.95;  // in [0, 1)
    double factor = 3;
    std::int64_t min_ns = 1'000'000;
    std::int64_t unknown_ns = 2'000'000'000;
  };

  explicit HedgeDelay(const Options& options) : options_(options), delay_ns_(options.unknown_ns) {}

  // A wait, in ns.
  void Add(std::int64_t wait_ns);

  [[nodiscard]] std::int64_t delay_ns() const { return delay_ns_; }

 private:
  const Options options_;
  std::int64_t delay_ns_;
  std::array<std::int64_t, kSamples> waits_{};
  std::uint64_t added_ = 0;
};

}  // namespace headrace
