#pragma once

// plan/ decides, before anything is read, who gets which sample when. Pure: no clock, thread, lock,
// I/O or log; the same arguments give the same plan on every node. docs/orders.md specifies each
// order so that it could be written again.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

// One sample for one row of one rank's batch.
struct Delivery {
  SampleId sample{};
  std::uint32_t rank = 0;
  std::uint32_t slot = 0;  // the row in the rank's batch

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

// One global batch, as far as the ranks that the plan is for take part in it.
struct Step {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;            // within the epoch
  bool ends_epoch = false;           // no further step in this epoch
  std::vector<Delivery> deliveries;  // ordered by rank, then slot; slots 0, 1, ... without a gap
};

// A place between two steps: the next step to come. Where an epoch has ended it is step 0 of the
// next.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

// A stream of steps. Not thread-safe: it belongs to whoever pulls.
class Order {
 public:
  virtual ~Order() = default;

  // The next step, or nothing after the last.
  virtual std::optional<Step> Next() = 0;
};

}  // namespace headrace
