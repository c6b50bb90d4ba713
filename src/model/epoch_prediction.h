#pragma once

// Predicts how long an epoch takes on a machine. Two methods:
//
// PredictEpoch() is for our engine, which overlaps everything: an epoch takes as long as its
// busiest resource. It needs counts only.
//
// StreamClock is NoPFS's recurrence (Dryden et al. 2021, section 4): the p_0 staging threads of one
// worker fetch samples one after the other, and the worker consumes them in order. It models when
// each sample is available, for comparison and for models of a node step by step.

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/machine_model.h"
#include "headrace/status.h"

namespace headrace {

// Reads of one size.
struct ReadCount {
  double read_bytes = 0;
  double reads = 0;
};

// The work of one epoch for one node.
struct EpochWork {
  struct TierWork {
    std::vector<ReadCount> reads;
    std::vector<ReadCount> writes;
  };

  double samples = 0;
  std::vector<ReadCount> storage;
  std::vector<TierWork> tiers;   // by position in MachineModel::tiers; may be shorter
  std::vector<ReadCount> peers;  // samples received from other nodes
  double decode_bytes = 0;       // stored bytes that are decoded
  double copy_bytes = 0;         // moved from memory to memory, besides decoding
  double demand = kUnlimited;    // samples a second that the trainer takes

  double threads = 1;          // threads that decode and copy
  double reads_in_flight = 1;  // of this node at storage
  double storage_sharers = 1;  // nodes that read storage at the same time, as much as this one
};

// The resources that can limit an epoch.
enum class Resource : std::uint8_t { kStorage, kTier, kPeers, kDecode, kCopy, kConsumer };

struct ResourceSeconds {
  Resource resource = Resource::kStorage;
  std::size_t tier = 0;  // for kTier
  double seconds = 0;    // if it were the only limit
};

struct EpochPrediction {
  double seconds = 0;
  ResourceSeconds bound;                   // the resource that limits the epoch
  std::vector<ResourceSeconds> resources;  // every one with work, in the enum's order
};

// "storage", "tier 0", "peers", "decode", "copy", "consumer"
std::string ResourceName(const ResourceSeconds& resource);

// The largest of all resources' seconds. Decoding and copying run on the same threads, so both
// count with their sum, reported as the longer one. Of equal resources the first in the enum is the
// bound; an epoch without work is bound by the consumer.
//
// Errors: InvalidArgument  a count that is below 0 or not finite, threads, reads_in_flight, sharers
//                          or demand not above 0, reads of 0 bytes, a tier or peers that the model
//                          does not have; those of CheckModel()
Result<EpochPrediction> PredictEpoch(const MachineModel& model, const EpochWork& work);

// t(f) = max(avail(f), t(f-1) + s(f-1) / c): when a worker begins to compute on its f-th sample.
// avail(f) = sum over k <= f of (fetch(k) + write(k)) / p_0.
//
// Thread safety: thread-compatible: const calls may be concurrent.
// Ownership: `model` must outlive it. The caller has checked it with CheckModel().
class StreamClock {
 public:
  // `compute_rate`: c, bytes a second; above 0.
  StreamClock(const MachineModel& model, double compute_rate);

  // Adds the next sample of the stream, read from `source`. Returns when computing on it begins;
  // infinite if the model does not have the source.
  double Add(double bytes, Source source);

  // The next sample is not computed before `seconds`: other workers of a bulk-synchronous step
  // finish then.
  void WaitUntil(double seconds);

  [[nodiscard]] double now() const { return end_; }              // when the last sample is computed
  [[nodiscard]] double available() const { return available_; }  // when it was staged
  [[nodiscard]] double compute_seconds() const { return compute_; }
  // Time spent waiting for samples, not for other workers.
  [[nodiscard]] double stall_seconds() const { return stall_; }
  [[nodiscard]] double fetch_seconds(Source::Kind kind) const {
    return fetch_[static_cast<std::size_t>(kind)];
  }

 private:
  const MachineModel& model_;
  const double compute_rate_;
  double end_ = 0;
  double available_ = 0;
  double compute_ = 0;
  double stall_ = 0;
  double fetch_[3] = {};  // by Source::Kind, summed over the threads
};

}  // namespace headrace
