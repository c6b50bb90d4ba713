#pragma once

// plan/ decides, before anything is read, which rank gets which sample at which step. Pure: no
// clock, thread, lock, I/O or log; the same arguments give the same plan on every node.
// docs/orders.md specifies each order completely.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// For a delivery whose sample no block read brings: it needs a read of its own.
inline constexpr std::uint64_t kNoBlockRead = ~std::uint64_t{0};

// Consecutive samples that are read together. A *kept* sample stays resident until exactly one
// delivery, release or parcel of the same stream names it; the others are discarded after the read.
//
// With a `home` it is a parcel that another node sends: its kept samples come from there, and
// nothing is read.
struct BlockRead {
  std::uint64_t number = 0;  // in its stream: 0, 1, 2, ... in the order of issue
  SampleId first{};
  std::uint32_t count = 0;          // samples first, first + 1, ...
  std::vector<std::uint32_t> kept;  // positions in the run, ascending; empty: all of them
  bool again = false;               // was resident when the state was saved, and is read again
  bool whole = false;               // all of the run is read, kept or not, in one read
  NodeNumber home = kNoNode;        // the node that sends the kept samples; kNoNode: storage
  std::uint64_t parcel = 0;         // with a home: which one, as Parcel::number

  friend bool operator==(const BlockRead&, const BlockRead&) = default;
};

// The kept sample of a block read at position `place`.
inline SampleId KeptSampleId(const BlockRead& read, std::uint32_t place) {
  return SampleId{Raw(read.first) + (read.kept.empty() ? place : read.kept[place])};
}

// One sample for one row of one rank's batch.
struct Delivery {
  SampleId sample{};
  std::uint32_t rank = 0;
  std::uint32_t slot = 0;                   // the row in the rank's batch
  std::uint64_t block_read = kNoBlockRead;  // the read that keeps the sample for this delivery

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

// A kept sample that no rank of the stream receives.
struct Release {
  std::uint64_t block_read = 0;
  SampleId sample{};

  friend bool operator==(const Release&, const Release&) = default;
};

// Kept samples that this node sends another one, for which a BlockRead there keeps them. In an
// order that exchanges samples (OrderOptions::exchange) each node reads its own blocks only.
struct Parcel {
  NodeNumber node = 0;           // where they go
  std::uint64_t number = 0;      // from this node to that one: 0, 1, 2, ... from the stream's start
  std::vector<Release> samples;  // by sample, ascending
  // No request waits for it: ready parts of other parcels are sent first.
  bool ahead = false;

  friend bool operator==(const Parcel&, const Parcel&) = default;
};

// The part of one global batch that concerns the stream's ranks.
//
// Memory: a sample is charged from its block read to its delivery, parcel or release. In the
// planner's order of events no stream exceeds its OrderFactory::ResidentUnits(). A Step does not
// contain that order: before the last reads of a step fit, the engine may have to deliver or send
// some of its samples. The reverse never happens.
struct Step {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;        // within the epoch
  bool ends_epoch = false;       // no further step in this epoch
  std::vector<BlockRead> reads;  // issued with this step, by number
  // Sorted by rank, then slot. Every rank has the same number, in slots 0, 1, ... without a gap.
  std::vector<Delivery> deliveries;
  std::vector<Release> releases;
  std::vector<Parcel> parcels;  // sent with this step; by node, then number
  // Block reads numbered below this must be complete when the step is handed over, whether it needs
  // them or not. This paces a consumer that is faster than storage evenly; otherwise it would run
  // through the samples in memory at the end of an epoch and then wait that much longer for the
  // next epoch.
  std::uint64_t reads_due = 0;
};

// A stream of steps.
//
// Thread safety: none; one caller at a time.
class Order {
 public:
  virtual ~Order() = default;

  // The next step; std::nullopt after the last.
  virtual std::optional<Step> Next() = 0;

  // Counters since the order was made, by name; docs/orders.md explains them.
  [[nodiscard]] virtual std::map<std::string, double> counters() const { return {}; }

  // The planner's state after the last step, as a JSON object, for debugging. Empty: before
  // the first step, or the order has no such form.
  [[nodiscard]] virtual std::string Dump() const { return {}; }
};

}  // namespace headrace
