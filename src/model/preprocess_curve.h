#pragma once

#include <span>
#include <vector>

namespace headrace {

// How long one sample takes to preprocess, as a piece-wise linear function of the number of threads
// that do the same (Liu et al. 2022, section 4.1).
//
// Threads share memory bandwidth and caches. Up to the knee a sample takes as long as alone; beyond
// it, its time grows in proportion to the threads, and total throughput is constant. In both parts
// the seconds of a sample are a straight line, so lines are fitted.
//
// Between two pieces the function is a line from the end of one to the start of the next. Below the
// smallest observed number of threads a sample takes as long as at that number. Above the largest,
// throughput is that of the largest: the function never predicts a gain that was not observed.
//
// Immutable.
// Thread safety: thread-compatible: const calls may be concurrent.
class PreprocessCurve {
 public:
  struct Point {
    double threads = 0;
    double seconds = 0;  // of one sample on one thread, on average
    double weight = 1;   // number of observations
  };
  struct Knot {
    double threads = 0;
    double seconds = 0;

    friend bool operator==(const Knot&, const Knot&) = default;
  };

  static constexpr int kPiecesMax = 4;

  // Least squares of the relative error over all ways to cut the points into at most kPiecesMax
  // runs with a line each: exact, by dynamic programming, O(points^2 * kPiecesMax). A further piece
  // must improve the Bayesian information criterion, for errors of 1 %.
  //
  // At least one point; threads ascend from above 0; seconds and weights above 0 and finite.
  explicit PreprocessCurve(std::span<const Point> points);

  // `threads` must be above 0. Always above 0 and finite.
  [[nodiscard]] double Seconds(double threads) const;
  // Samples a second of all threads together.
  [[nodiscard]] double Throughput(double threads) const { return threads / Seconds(threads); }
  // The fewest threads in [1, threads_max] that reach 98 % of the best throughput there: more would
  // only take memory bandwidth from others. `threads_max` must be above 0.
  [[nodiscard]] int PeakThreads(int threads_max) const;

  [[nodiscard]] std::span<const Knot> knots() const { return knots_; }  // threads ascend

 private:
  std::vector<Knot> knots_;
};

}  // namespace headrace
