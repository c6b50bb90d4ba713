#pragma once

#include <cstdint>
#include <limits>

namespace headrace {

// How many attempts may be in flight. Additive increase, multiplicative decrease (Chiu and Jain,
// "Analysis of the increase and decrease algorithms for congestion avoidance", 1989): one more
// after as many successes as the window is large, half of it when the store asks to slow down.
//
// Only successes while the window was full count: others do not show that a larger one
// works. The window is halved once a round trip: answers to attempts that began before the last
// halving are of the larger one.
//
// Thread safety: none; one thread drives. Cost: O(1).
class ReadWindow {
 public:
  struct Options {
    std::uint32_t min = 1;  // in attempts; at least 1
    std::uint32_t start = 32;
    std::uint32_t max = 256;
  };

  // Must be: 1 <= min <= start <= max.
  explicit ReadWindow(const Options& options);

  [[nodiscard]] std::uint32_t limit() const { return limit_; }

  // An attempt succeeded; when its answer came, `in_flight` were in flight, with itself.
  void Success(std::uint32_t in_flight);

  // The store asked an attempt that began at `started_ns` to slow down. Returns whether this halved
  // the window.
  bool SlowDown(std::int64_t started_ns, std::int64_t now_ns);

 private:
  const Options options_;
  std::uint32_t limit_;
  std::uint32_t successes_ = 0;  // that count, since the limit changed
  std::int64_t halved_ns_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace headrace
