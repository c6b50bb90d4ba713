#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/order_options.h"
#include "plan/epoch/epoch_options.h"
#include "plan/order.h"

namespace headrace {

// The frame of a stream of the `epoch` order, with one home or several: which step comes next, and
// which positions of the epoch it has.
//
// Thread safety: none.
class EpochSteps {
 public:
  // The positions of a step: [begin, end) of the epoch, for `rows` of each rank. It pads if these
  // are more.
  struct Positions {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t rows = 0;
    bool pads = false;
  };

  // `start` has passed CheckStart().
  EpochSteps(const OrderOptions& job, std::uint64_t steps_per_epoch, Position start)
      : job_(job),
        steps_per_epoch_(steps_per_epoch),
        delivered_(DeliveredInEpoch(job, steps_per_epoch)),
        next_(start) {}

  // Samples that an epoch delivers, without padding.
  [[nodiscard]] std::uint64_t delivered() const { return delivered_; }
  [[nodiscard]] bool done() const { return next_.epoch >= job_.epochs; }
  [[nodiscard]] Position next() const { return next_; }
  // The first position of the next step.
  [[nodiscard]] std::uint64_t begin() const {
    return next_.step * job_.batch_size * job_.world_size;
  }
  [[nodiscard]] Positions positions() const {
    const std::uint64_t rows = RowsOfStep(job_, next_.step);
    const std::uint64_t end = begin() + rows * job_.world_size;
    return {
        .begin = begin(), .end = std::min(end, delivered_), .rows = rows, .pads = end > delivered_};
  }

  // The next step, which nothing is planned in yet. It must not be done().
  [[nodiscard]] Step Begin() const {
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    return step;
  }
  // Goes on to the step after it. Returns whether another epoch of the run begins there.
  bool Advance() {
    if (++next_.step < steps_per_epoch_) return false;
    next_ = {.epoch = next_.epoch + 1, .step = 0};
    return !done();
  }

 private:
  const OrderOptions job_;
  const std::uint64_t steps_per_epoch_;
  const std::uint64_t delivered_;
  Position next_;
};

}  // namespace headrace
