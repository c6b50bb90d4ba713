#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/lane_shares.h"
#include "model/share_corrector.h"
#include "plan/order.h"

namespace headrace {

// What a lane has before it when a step has been admitted, and what it took so far.
struct LaneWork {
  std::uint64_t queued_bytes = 0;    // of its reads that are not issued
  std::uint64_t queued_samples = 0;  // not decoded, of all its steps in work
  std::uint64_t step_samples = 0;    // of the step just admitted ...
  std::uint64_t step_bytes = 0;      // ... as stored
  double read_ns_per_byte = 0;       // of one read at a time, as it went lately; 0: unknown
  double decode_ns_per_byte = 0;     // of one thread, as it went lately; 0: unknown
  std::int64_t step_ns = 0;          // the consumer's own time a step lately; 0: unknown
};

// What a lane may have at once. Never 0.
struct LaneShare {
  std::uint32_t reads = 1;    // in flight
  std::uint32_t decodes = 1;  // decode tasks that run or wait for a thread
};

// What a policy did so far.
struct LaneCounts {
  std::uint64_t stragglers = 0;  // steps for which a lane was predicted to be late
  std::uint64_t corrections =
      0;                      // times that shares were moved, away from a plan or what was before
  std::uint64_t planned = 0;  // steps whose shares a schedule says
  std::uint32_t decodes = 0;  // gauge: decode threads that it gives out; 0: all there are
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

// How many decode threads are of use: see engine/lanes/decode_limit.h.
class DecodeThreads {
 public:
  virtual ~DecodeThreads() = default;

  // Asked once a step, by a policy. At least 1.
  virtual std::uint32_t Threads(std::span<const LaneWork> work) = 0;
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

// The lanes' loads for a step, in the nanoseconds that one read at a time would take: so each
// lane's own rate counts, where a LoadModel has one for all. `decodes`: of each lane.
std::vector<LaneLoad> LoadsOf(std::span<const LaneWork> work, std::span<const int> decodes);

// The model for these loads.
LoadModel ModelOfReads(std::uint32_t reads);

// Gives out what is left of `budget`, so that all of it is somebody's.
void FillShares(std::span<const LaneLoad> loads, const LoadModel& model, int budget,
                LaneShares& shares);

// As Lobster has it (Liu et al. 2022, section 4.4): reads in proportion to the queues while no lane
// is predicted to be late, else so that the last lane is done as early as can be; decode threads in
// proportion to what there is to decode. What reads and decodes take is learned while running.
//
// That decides where it begins, once every lane's rate is known; until then nothing can be
// predicted, and reads are split in proportion to the bytes that wait. From there on shares move
// slowly (ShareCorrector): noise of single steps moves none.
class LobsterLanePolicy final : public LanePolicy {
 public:
  struct Options {
    LaneBudget budget;
    // kBinarySearch: the paper's own, asked again every corrector.period steps; what it says is
    // taken where it promises corrector.gain_min.
    LobsterOptions::Search search = LobsterOptions::Search::kMakespan;
    double theta = 0.1;
    ShareCorrector::Options corrector;
    DecodeThreads* decode_threads = nullptr;  // null: all of the budget, always
  };

  explicit LobsterLanePolicy(const Options& options);
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override;
  [[nodiscard]] LaneCounts counts() const override;

 private:
  void SplitDecodes(std::span<const LaneWork> work);
  void SplitReads(std::span<const LaneWork> work);
  void Jump(std::span<const LaneLoad> loads, const LobsterDecision& decision);

  const Options options_;
  const LoadModel model_;
  LaneShares reads_;
  LaneShares decodes_;
  int decodes_given_ = 0;
  bool rates_known_ = false;                 // every lane that reads has shown how fast
  std::optional<ShareCorrector> corrector_;  // from then on; none with kBinarySearch
  std::uint64_t steps_ = 0;
  std::atomic<std::uint64_t> stragglers_ = 0;
  std::atomic<std::uint64_t> corrections_ = 0;
  std::atomic<std::uint32_t> decode_threads_ = 0;
};

}  // namespace headrace
