#pragma once

#include <cstdint>
#include <optional>

#include "headrace/batch.h"

namespace headrace {

// Measures one consumer of batches: how long it waits for them, by cause, and how long it works
// between two of them. All times are nanoseconds of one clock.
//
// Thread safety: none.
class StallMeter {
 public:
  // The consumer took a batch.
  void OnTaken(std::int64_t now_ns);
  // It found no batch and waits. Ignored if it waits already.
  void OnWaiting(std::int64_t now_ns);
  // The batch that it waits for is there. Call Account() first.
  void OnBatch();
  // It gets no more batches.
  void OnEnd() { waiting_ = false; }

  // Adds the wait up to `now_ns` to its cause. Returns the time added.
  std::int64_t Account(std::int64_t now_ns);
  // The cause of the wait from now on.
  void set_cause(StallCause cause) { cause_ = cause; }
  [[nodiscard]] StallCause cause() const { return cause_; }

  [[nodiscard]] bool waiting() const { return waiting_; }
  // When the wait began, while it lasts.
  [[nodiscard]] std::int64_t waits_since_ns() const { return began_ns_; }
  [[nodiscard]] const StallTimes& stall_ns() const { return stall_ns_; }
  // The part of stall_ns() since the call before.
  StallTimes TakeNew();

  // The consumer's own time a step, from a batch taken to the next one asked for, averaged over the
  // last steps; 0: unknown.
  [[nodiscard]] std::int64_t step_ns() const { return step_ns_; }

 private:
  void LearnStep(std::int64_t now_ns);

  bool waiting_ = false;
  StallCause cause_ = StallCause::kStorage;
  std::int64_t began_ns_ = 0;             // of the newest wait
  std::int64_t since_ns_ = 0;             // the wait is accounted for up to here
  std::optional<std::int64_t> taken_ns_;  // empty: no batch taken, or it waits again
  std::int64_t step_ns_ = 0;
  StallTimes stall_ns_{};
  StallTimes told_ns_{};
};

}  // namespace headrace
