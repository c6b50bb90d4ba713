#pragma once

#include <cstdint>
#include <span>

#include "fetch/fetch.h"
#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

// A figure of a lane's reads for each place that they read from.
template <typename T>
struct BySource {
  T tier{};  // on a disk of this node; what is in memory is not read
  T node{};  // another node
  T storage{};

  [[nodiscard]] T& Of(const Fetch& read) {
    return read.in_storage() ? storage : read.at_node() ? node : tier;
  }
};

// What a lane has before it when a step has been admitted, and what it took so far.
struct LaneWork {
  BySource<std::uint64_t> queued_bytes;  // of its reads that are not issued
  std::uint64_t queued_samples = 0;      // not decoded, of all its steps in work
  std::uint64_t step_samples = 0;        // of the step just admitted ...
  std::uint64_t step_bytes = 0;          // ... as stored
  BySource<std::uint64_t> step_reads;    // ... and what of it is read, in bytes
  BySource<double> read_ns_per_byte;     // of one read at a time, as it went lately; 0: unknown
  double decode_ns_per_byte = 0;         // of one thread, as it went lately; 0: unknown
  std::int64_t step_ns = 0;              // the consumer's own time a step lately; 0: unknown
};

// What a lane may have at once. Never 0.
struct LaneShare {
  std::uint32_t reads = 1;    // in flight
  std::uint32_t decodes = 1;  // decode tasks that run or wait for a thread
};

// What a policy did so far.
struct LaneCounts {
  std::uint64_t stragglers = 0;   // steps for which a lane was predicted to be late
  std::uint64_t corrections = 0;  // times that shares were moved, from a plan or those before
  std::uint64_t planned = 0;      // steps whose shares came from a schedule
  std::uint32_t decodes = 0;      // gauge: decode threads that it gives out; 0: all
};

// Splits reads in flight and decode threads between the lanes of a node. Deterministic: the same
// loads in the same sequence give the same shares.
//
// Thread safety: the engine asks for shares, one call at a time; counts() may be called from any
// thread.
class LanePolicy {
 public:
  virtual ~LanePolicy() = default;

  // Asked once a step, when `at` has been admitted, with the work of each lane; `shares` has a
  // share a lane, those of the step before (all 1 at first). An error ends the run, at this step.
  //
  // Errors: those of following a schedule; others have none
  virtual Status Split(Position at, std::span<const LaneWork> work,
                       std::span<LaneShare> shares) = 0;

  [[nodiscard]] virtual LaneCounts counts() const { return {}; }
};

// What may run at once on the node.
struct LaneBudget {
  std::uint32_t reads = 64;
  std::uint32_t decodes = 1;
};

// Learns what decoding takes.
class DecodeObserver {
 public:
  struct Decoded {
    std::uint64_t samples = 1;  // by one thread, one after the other
    std::uint64_t bytes = 0;    // of all of them, as stored
    int threads = 1;            // that decoded meanwhile, this one among them
    std::int64_t nanoseconds = 0;
  };

  virtual ~DecodeObserver() = default;

  // After every task. One call at a time; must not call the engine.
  virtual void OnDecoded(const Decoded& decoded) = 0;
};

// Equal shares whatever is to be done, as DALI's and torch's loaders have it.
class FixedLanePolicy final : public LanePolicy {
 public:
  explicit FixedLanePolicy(LaneBudget budget) : budget_(budget) {}
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override;

 private:
  const LaneBudget budget_;
};

}  // namespace headrace
