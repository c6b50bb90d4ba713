#pragma once

// plan/ decides, before anything is read, who gets which sample when. Pure: no clock, thread, lock,
// I/O or log; the same arguments give the same plan on every node. docs/orders.md specifies each
// order so that it could be written again.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

// Says of a delivery that no block read brings its sample: it takes a read of its own.
inline constexpr std::uint64_t kNoBlockRead = ~std::uint64_t{0};

// A run of neighbouring samples that is read together. The *kept* ones stay resident until a
// delivery or a release of the same stream names them, exactly one does; the others are let go.
struct BlockRead {
  std::uint64_t number = 0;  // in its stream: 0, 1, 2, ... in the order of issue
  SampleId first{};
  std::uint32_t count = 0;          // samples first, first + 1, ...
  std::vector<std::uint32_t> kept;  // positions in the run, ascending; empty: all of them
  bool again = false;               // was resident when a state was saved, and is read once more

  friend bool operator==(const BlockRead&, const BlockRead&) = default;
};

// One sample for one row of one rank's batch.
struct Delivery {
  SampleId sample{};
  std::uint32_t rank = 0;
  std::uint32_t slot = 0;                   // the row in the rank's batch
  std::uint64_t block_read = kNoBlockRead;  // the one that keeps it for this delivery

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

// A kept sample that no rank of the stream will be given.
struct Release {
  std::uint64_t block_read = 0;
  SampleId sample{};

  friend bool operator==(const Release&, const Release&) = default;
};

// One global batch, as far as the ranks that the plan is for take part in it.
//
// Memory: with every sample charged from its block read to its delivery or release, in the order
// reads, deliveries and releases have inside the planner, no stream passes what its
// OrderFactory::ResidentBytes() says. Inside a step that order is not told: whoever runs the step
// may have to deliver some of it before there is room for its last reads, and never the other way
// round.
struct Step {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;        // within the epoch
  bool ends_epoch = false;       // no further step in this epoch
  std::vector<BlockRead> reads;  // issued with this step, by number
  // Ordered by rank, then slot. Every rank has as many, in slots 0, 1, ... without a gap.
  std::vector<Delivery> deliveries;
  std::vector<Release> releases;
  // Block reads numbered below this are to have come when the step is handed over, needed by it or
  // not. So a consumer faster than storage is paced evenly, instead of running through what is in
  // memory at the end of an epoch and waiting for the next as much longer.
  std::uint64_t reads_due = 0;
};

// A place between two steps: the next step to come. Where an epoch has ended it is step 0 of the
// next.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend auto operator<=>(const Position&, const Position&) = default;
};

// For messages: "step 3 of epoch 1".
inline std::string StepText(Position at) {
  return "step " + std::to_string(at.step) + " of epoch " + std::to_string(at.epoch);
}

// A stream of steps. Not thread-safe: it belongs to whoever pulls.
class Order {
 public:
  virtual ~Order() = default;

  // The next step, or nothing after the last.
  virtual std::optional<Step> Next() = 0;

  // What the planner counted since it was made, by name; docs/orders.md says what they mean.
  [[nodiscard]] virtual std::map<std::string, double> counters() const { return {}; }
};

}  // namespace headrace
