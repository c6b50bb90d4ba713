#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/machine_model.h"

namespace headrace {

// The bytes that one lane, a rank of the node, must load and preprocess for its next batches.
struct LaneLoad {
  static constexpr std::size_t kTiersMax = 8;
  template <typename T>
  using ByTier = std::array<T, kTiersMax>;

  std::uint64_t requests = 0;    // in the lane's queue
  ByTier<double> local_bytes{};  // in each tier of the node
  double remote_bytes = 0;       // in a tier of another node
  double storage_bytes = 0;
  double preprocess_seconds = 0;  // T_P

  friend bool operator==(const LaneLoad&, const LaneLoad&) = default;
};

// Bytes a second of all threads of one lane together, by their number: n * T(n), where T is the
// rate of one thread while n are reading. Storage is assumed to give each lane the same, whatever
// the others do (Liu et al. 2022, section 4.3).
struct LoadRates {
  LaneLoad::ByTier<Curve> local;  // T_l of each tier
  Curve remote;                   // T_r
  Curve storage;                  // T_PFS
};

// How a lane's threads divide the three kinds of reads.
enum class LoadPools : std::uint8_t {
  kShared,    // one pool reads all kinds one after the other: times add up (equation 1)
  kParallel,  // one pool of that size for each kind: the slowest pool counts
};

// T_L and T_L + T_P of a lane by its number of loading threads: equation 1 with alpha = beta =
// gamma = n, and T(.) the rate of one thread. (The paper calls T(.) the rate of all, and then
// multiplies it by their number.) The paper's nodes have one tier, in memory: here each tier has a
// term of its own.
//
// More threads never take longer: if the rates fall, a lane leaves the threads idle that would slow
// it.
//
// Immutable.
// Thread safety: thread-compatible: const calls may be concurrent.
// Memory: 80 bytes a thread.
class LoadModel {
 public:
  // For up to `threads_max` threads a lane, at least 1.
  LoadModel(const LoadRates& rates, int threads_max, LoadPools pools = LoadPools::kShared);

  // T_L: loading alone, with [1, threads_max] threads. Linear in the lane's bytes.
  [[nodiscard]] double LoadSeconds(const LaneLoad& lane, int threads) const;
  // T_L + T_P.
  [[nodiscard]] double Seconds(const LaneLoad& lane, int threads) const {
    return LoadSeconds(lane, threads) + lane.preprocess_seconds;
  }
  // The fewest threads with which Seconds() is at most `seconds`; 0 if `threads_most`, in [1,
  // threads_max], are too few.
  [[nodiscard]] int ThreadsFor(const LaneLoad& lane, double seconds, int threads_most) const;

  [[nodiscard]] int threads_max() const { return static_cast<int>(of_a_byte_.size()); }

 private:
  struct OfAByte {  // seconds
    LaneLoad::ByTier<double> local{};
    double remote = 0;
    double storage = 0;
  };

  LoadPools pools_;
  std::vector<OfAByte> of_a_byte_;  // by threads - 1
};

}  // namespace headrace
