#pragma once

#include <cstdint>
#include <optional>

#include "base/prng.h"

namespace headrace {

// A wait before another try, after `failures` in a row (at least 1): uniform over [0, first_ns *
// 2^(failures - 1)), the upper end at most `max_ns`. "Full jitter" of the AWS Builders' Library,
// "Timeouts, retries, and backoff with jitter": clients that failed together do not return
// together.
std::int64_t JitterNs(std::int64_t first_ns, std::int64_t max_ns, std::uint32_t failures,
                      Prng& prng);

// When a store that asks to slow down may be sent the next attempt, and when to give up.
//
// Thread safety: none; one thread drives. Cost: O(1).
class StorePause {
 public:
  struct Options {
    std::int64_t first_ns = 100'000'000;  // upper end of the first wait
    std::int64_t max_ns = 5'000'000'000;  // of any; after the trouble the store waits as long
    std::int64_t retry_after_max_ns = 60'000'000'000;  // of what the store asks for
    std::int64_t deadline_ns = 300'000'000'000;        // without one success
  };

  StorePause(const Options& options, Prng& prng) : options_(options), prng_(prng) {}

  // The store asked to slow down: for `retry_after_ns`, if it said so. `fresh`: it answers an
  // attempt that began after the last fresh one, so the next wait is longer. Others add no wait.
  void SlowDown(std::optional<std::int64_t> retry_after_ns, bool fresh, std::int64_t now_ns);

  // An attempt succeeded: the next wait is short again. A wait that is under way stays.
  void Success();

  // No read was asked for during `idle_ns`. After more than Options::retry_after_max_ns what the
  // store said before counts no more: the time did not pass without an answer.
  void Rested(std::int64_t idle_ns) {
    if (idle_ns > options_.retry_after_max_ns) Success();
  }

  // No attempt may begin before.
  [[nodiscard]] std::int64_t resume_ns() const { return resume_ns_; }

  // Whether the store asked to slow down since its last success.
  [[nodiscard]] bool slow() const { return slow_ns_.has_value(); }
  // Whether it has been slow for Options::deadline_ns or longer.
  [[nodiscard]] bool expired(std::int64_t now_ns) const {
    return slow_ns_ && now_ns - *slow_ns_ >= options_.deadline_ns;
  }

 private:
  const Options options_;
  Prng& prng_;
  std::uint32_t failures_ = 0;  // fresh ones since the last success
  std::int64_t resume_ns_ = 0;
  std::optional<std::int64_t> slow_ns_;  // the first time since the last success
};

}  // namespace headrace
