#include "model/preprocess_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace headrace {
namespace {

using Point = PreprocessCurve::Point;
using Knot = PreprocessCurve::Knot;

constexpr double kErrorOfNote = 0.01;  // relative; smaller errors are not worth a piece
constexpr double kParametersOfAPiece = 3;
constexpr double kOfThePeak = 0.98;
constexpr double kOfTheLeast = 0.5;  // a fitted line never falls below this share of any mean

// A line by weighted least squares, and its error.
struct Line {
  double middle = 0;  // threads
  double value = 0;   // seconds at `middle`
  double slope = 0;
  double error = 0;  // sum of weight * residual^2

  [[nodiscard]] double At(double threads) const { return value + slope * (threads - middle); }
};

// Prefix sums over the points, so that any range of points is fitted in O(1). Numbers of threads
// are small, so the differences of sums are precise enough.
class Lines {
 public:
  explicit Lines(std::span<const Point> points) : sums_(points.size() + 1) {
    double total = 0;
    for (const Point& point : points) total += point.weight;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto [x, y, weight] = points[i];
      // Relative errors count; the mean weight is 1.
      const double w = weight / total * static_cast<double>(points.size()) / (y * y);
      sums_[i + 1] = {sums_[i].w + w,          sums_[i].x + w * x,      sums_[i].y + w * y,
                      sums_[i].xx + w * x * x, sums_[i].xy + w * x * y, sums_[i].yy + w * y * y};
    }
  }

  // Of points [first, last).
  [[nodiscard]] Line Fit(std::size_t first, std::size_t last) const {
    const Sums& a = sums_[first];
    const Sums& b = sums_[last];
    const double w = b.w - a.w;
    Line line{.middle = (b.x - a.x) / w, .value = (b.y - a.y) / w};
    const double xx = (b.xx - a.xx) - w * line.middle * line.middle;
    const double xy = (b.xy - a.xy) - w * line.middle * line.value;
    const double yy = (b.yy - a.yy) - w * line.value * line.value;
    if (last - first > 1 && xx > 0) line.slope = xy / xx;
    line.error = std::max(0.0, yy - line.slope * xy);
    return line;
  }

 private:
  struct Sums {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  };
  std::vector<Sums> sums_;
};

// The best cuts into 1, 2, ... pieces: the least error and, for each end, the start of the last
// piece.
struct Cuts {
  std::vector<double> error;       // of the first i points
  std::vector<std::size_t> start;  // start of the last piece of the first i points
};

std::vector<Cuts> BestCuts(const Lines& lines, std::size_t points) {
  std::vector<Cuts> best;
  const std::size_t pieces_max = std::min<std::size_t>(points, PreprocessCurve::kPiecesMax);
  for (std::size_t pieces = 1; pieces <= pieces_max; ++pieces) {
    Cuts cuts{.error = std::vector(points + 1, std::numeric_limits<double>::infinity()),
              .start = std::vector<std::size_t>(points + 1)};
    for (std::size_t end = pieces; end <= points; ++end) {
      const std::size_t start_first = pieces == 1 ? 0 : pieces - 1;
      const std::size_t start_last = pieces == 1 ? 0 : end - 1;
      for (std::size_t start = start_first; start <= start_last; ++start) {
        const double before = pieces == 1 ? 0 : best.back().error[start];
        const double error = before + lines.Fit(start, end).error;
        if (error < cuts.error[end]) {
          cuts.error[end] = error;
          cuts.start[end] = start;
        }
      }
    }
    best.push_back(std::move(cuts));
  }
  return best;
}

std::size_t CountOfPieces(const std::vector<Cuts>& best, std::size_t points) {
  const auto n = static_cast<double>(points);
  std::size_t chosen = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t pieces = 1; pieces <= best.size(); ++pieces) {
    const double error = best[pieces - 1].error[points] / n + kErrorOfNote * kErrorOfNote;
    const double cost =
        n * std::log(error) + kParametersOfAPiece * static_cast<double>(pieces) * std::log(n);
    if (cost < least) {
      least = cost;
      chosen = pieces;
    }
  }
  return chosen;
}

}  // namespace

PreprocessCurve::PreprocessCurve(std::span<const Point> points) {
  HEADRACE_CHECK(!points.empty());
  double before = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Point& point : points) {
    HEADRACE_CHECK(point.threads > before && std::isfinite(point.threads));
    HEADRACE_CHECK(point.seconds > 0 && std::isfinite(point.seconds));
    HEADRACE_CHECK(point.weight > 0 && std::isfinite(point.weight));
    before = point.threads;
    least = std::min(least, point.seconds);
  }
  const Lines lines(points);
  const std::vector<Cuts> best = BestCuts(lines, points.size());
  // From the last piece to the first.
  std::size_t end = points.size();
  for (std::size_t pieces = CountOfPieces(best, points.size()); pieces > 0; --pieces) {
    const std::size_t start = best[pieces - 1].start[end];
    const Line line = lines.Fit(start, end);
    const auto add = [&](double threads) {
      knots_.push_back(
          {.threads = threads, .seconds = std::max(line.At(threads), least * kOfTheLeast)});
    };
    add(points[end - 1].threads);
    if (end - start > 1) add(points[start].threads);
    end = start;
  }
  std::reverse(knots_.begin(), knots_.end());
}

double PreprocessCurve::Seconds(double threads) const {
  HEADRACE_CHECK(threads > 0);
  const auto after = std::upper_bound(knots_.begin(), knots_.end(), threads,
                                      [](double t, const Knot& knot) { return t < knot.threads; });
  if (after == knots_.begin()) return knots_.front().seconds;
  const Knot& before = *(after - 1);
  if (after == knots_.end()) return before.seconds * (threads / before.threads);
  const double share = (threads - before.threads) / (after->threads - before.threads);
  return before.seconds + (after->seconds - before.seconds) * share;
}

int PreprocessCurve::PeakThreads(int threads_max) const {
  HEADRACE_CHECK(threads_max > 0);
  double best = 0;
  for (int threads = 1; threads <= threads_max; ++threads) {
    best = std::max(best, Throughput(threads));
  }
  int threads = 1;
  while (Throughput(threads) < kOfThePeak * best) ++threads;
  return threads;
}

}  // namespace headrace
