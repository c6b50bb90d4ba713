#include "model/preprocess_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The paper's figure 6: throughput grows up to 6 threads, then is flat and gets a little worse.
double SecondsOfFigure6(double threads) {
  if (threads <= 6) return 0.010;
  return 0.010 * threads / 6 * (1 + 0.01 * (threads - 6));
}

std::vector<PreprocessCurve::Point> Figure6(std::span<const int> threads, double noise,
                                            std::uint64_t seed) {
  Prng random(seed, 0, RandomStream::kOrder);
  std::vector<PreprocessCurve::Point> points;
  for (const int n : threads) {
    const double factor = 1 + noise * (2 * random.Uniform() - 1);
    points.push_back({.threads = static_cast<double>(n), .seconds = SecondsOfFigure6(n) * factor});
  }
  return points;
}

double LargestError(const PreprocessCurve& curve, int threads_max) {
  double largest = 0;
  for (int n = 1; n <= threads_max; ++n) {
    largest = std::max(largest, std::abs(curve.Seconds(n) / SecondsOfFigure6(n) - 1));
  }
  return largest;
}

constexpr int kAll[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr int kSome[] = {1, 2, 4, 6, 8, 12, 16};

TEST(PreprocessCurveTest, FindsTheKneeOfFigure6) {
  const PreprocessCurve curve(Figure6(kAll, 0, 0));
  EXPECT_LT(LargestError(curve, 16), 0.02);
  EXPECT_EQ(curve.PeakThreads(16), 6);
  EXPECT_EQ(curve.PeakThreads(4), 4);
  EXPECT_LE(curve.knots().size(), 6U);  // pieces, not the points themselves
  EXPECT_LT(curve.Throughput(16), curve.Throughput(6));
}

TEST(PreprocessCurveTest, FewThreadCountsAreEnough) {
  const PreprocessCurve curve(Figure6(kSome, 0, 0));
  EXPECT_LT(LargestError(curve, 16), 0.03);
  EXPECT_EQ(curve.PeakThreads(16), 6);
}

TEST(PreprocessCurveTest, NoiseIsNotFitted) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const PreprocessCurve curve(Figure6(kAll, 0.05, seed));
    EXPECT_LT(LargestError(curve, 16), 0.09) << "seed " << seed;
    EXPECT_GE(curve.PeakThreads(16), 5) << "seed " << seed;
    EXPECT_LE(curve.PeakThreads(16), 9) << "seed " << seed;
  }
}

TEST(PreprocessCurveTest, AStraightLineIsOnePiece) {
  std::vector<PreprocessCurve::Point> points;
  for (const int n : kAll) {
    points.push_back({.threads = static_cast<double>(n), .seconds = 0.001 + 0.002 * n});
  }
  const PreprocessCurve curve(points);
  ASSERT_EQ(curve.knots().size(), 2U);
  for (const auto& point : points) {
    EXPECT_NEAR(curve.Seconds(point.threads), point.seconds, 1e-12);
  }
  EXPECT_NEAR(curve.Seconds(2.5), 0.006, 1e-12);
}

TEST(PreprocessCurveTest, OneObservationSaysNothingOfMoreThreads) {
  const std::vector<PreprocessCurve::Point> points = {{.threads = 4, .seconds = 0.02}};
  const PreprocessCurve curve(points);
  EXPECT_DOUBLE_EQ(curve.Seconds(1), 0.02);
  EXPECT_DOUBLE_EQ(curve.Seconds(4), 0.02);
  EXPECT_DOUBLE_EQ(curve.Throughput(4), 200);
  EXPECT_DOUBLE_EQ(curve.Throughput(64), 200);
  EXPECT_EQ(curve.PeakThreads(64), 4);
}

TEST(PreprocessCurveTest, WeightsCount) {
  // One outlier seen once among points seen a whole window long.
  std::vector<PreprocessCurve::Point> points;
  for (const int n : kAll) {
    const bool outlier = n == 8;
    points.push_back({.threads = static_cast<double>(n),
                      .seconds = outlier ? 0.03 : 0.01,
                      .weight = outlier ? 1.0 : 256.0});
  }
  EXPECT_NEAR(PreprocessCurve(points).Seconds(8), 0.01, 0.0015);
  for (auto& point : points) point.weight = 256;
  EXPECT_GT(PreprocessCurve(points).Seconds(8), 0.012);
}

TEST(PreprocessCurveTest, IsTheLeastErrorOfAllCuts) {
  // All ways to cut 8 points in two lines, against the fit's own error.
  Prng random(3, 0, RandomStream::kOrder);
  const auto error_of_line = [](std::span<const PreprocessCurve::Point> points) {
    double least = 1e9;
    // The best line passes two points' neighbourhood: fit by the normal equations.
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& p : points) {
      const double weight = 1 / (p.seconds * p.seconds);
      w += weight;
      x += weight * p.threads;
      y += weight * p.seconds;
      xx += weight * p.threads * p.threads;
      xy += weight * p.threads * p.seconds;
    }
    const double determinant = w * xx - x * x;
    const double slope = points.size() > 1 ? (w * xy - x * y) / determinant : 0;
    const double start = (y - slope * x) / w;
    double error = 0;
    for (const auto& p : points) {
      const double residual = (start + slope * p.threads) / p.seconds - 1;
      error += residual * residual;
    }
    return std::min(least, error);
  };
  for (int round = 0; round < 50; ++round) {
    const std::size_t knee = 3 + random.Below(3);
    std::vector<PreprocessCurve::Point> points;
    for (std::size_t i = 0; i < 8; ++i) {
      const double base = i < knee ? 0.01 : 0.03 + 0.01 * static_cast<double>(i);
      points.push_back(
          {.threads = static_cast<double>(i + 1), .seconds = base * (1 + 0.02 * random.Uniform())});
    }
    const std::span<const PreprocessCurve::Point> all(points);
    double least = 1e9;
    for (std::size_t cut = 1; cut < 8; ++cut) {
      least = std::min(least, error_of_line(all.first(cut)) + error_of_line(all.subspan(cut)));
    }
    const PreprocessCurve curve(points);
    double error = 0;
    for (const auto& p : points) {
      const double residual = curve.Seconds(p.threads) / p.seconds - 1;
      error += residual * residual;
    }
    EXPECT_LE(error, least * (1 + 1e-6) + 1e-12) << "round " << round;
  }
}

TEST(PreprocessCurveTest, IsNeverBelowZeroAndNeverPredictsAGainNobodySaw) {
  Prng random(9, 0, RandomStream::kOrder);
  for (int round = 0; round < 2000; ++round) {
    std::vector<PreprocessCurve::Point> points;
    double threads = 0;
    double least = 1e9;
    const auto count = 1 + random.Below(12);
    for (std::uint64_t i = 0; i < count; ++i) {
      threads += 1 + static_cast<double>(random.Below(5));
      const double seconds = std::pow(10, -7 + 7 * random.Uniform());
      least = std::min(least, seconds);
      points.push_back({.threads = threads,
                        .seconds = seconds,
                        .weight = 1 + static_cast<double>(random.Below(100))});
    }
    const PreprocessCurve curve(points);
    for (int quarter = 1; quarter < 8 * threads; ++quarter) {
      const double at = quarter / 4.0;
      ASSERT_GE(curve.Seconds(at), least / 2 * (1 - 1e-12));
      ASSERT_TRUE(std::isfinite(curve.Seconds(at)));
    }
    ASSERT_LE(curve.Throughput(3 * threads), curve.Throughput(threads) * (1 + 1e-12));
  }
}

constexpr std::uint64_t kJpeg = 0x1111;
constexpr std::uint64_t kArray = 0x2222;

void ObserveFigure6(PreprocessModel& model, std::uint64_t transform, std::uint64_t bytes,
                    double scale) {
  for (const int n : kSome) {
    model.Observe({.transform = transform,
                   .bytes = bytes,
                   .threads = n,
                   .nanoseconds = std::llround(SecondsOfFigure6(n) * scale * 1e9)});
  }
}

// Fitted to Figure 6 at three scales.
PreprocessModel ThreeCurves() {
  PreprocessModel model;
  ObserveFigure6(model, kJpeg, 1'000, 1);
  ObserveFigure6(model, kJpeg, 100'000, 5);
  ObserveFigure6(model, kArray, 10'000, 0.1);
  model.Fit();
  return model;
}

TEST(PreprocessModelTest, KnowsNothingBeforeItIsFitted) {
  PreprocessModel model;
  EXPECT_EQ(model.Find(kJpeg, 1000), nullptr);
  ObserveFigure6(model, kJpeg, 1000, 1);
  EXPECT_EQ(model.Seconds(kJpeg, 1000, 2), std::nullopt);
  model.Fit();
  EXPECT_NEAR(model.Seconds(kJpeg, 1000, 2).value(), 0.010, 1e-6);
  EXPECT_EQ(model.Seconds(kArray, 1000, 2), std::nullopt);
}

TEST(PreprocessModelTest, AnUnseenSizeTakesTheNearestOfItsTransform) {
  const PreprocessModel model = ThreeCurves();
  EXPECT_EQ(model.curve_count(), 3U);
  EXPECT_NEAR(model.Seconds(kJpeg, 1, 2).value(), 0.010, 1e-6);
  EXPECT_NEAR(model.Seconds(kJpeg, 9'000, 2).value(), 0.010, 1e-6);  // 9 times, against 11
  EXPECT_NEAR(model.Seconds(kJpeg, 11'000, 2).value(), 0.050, 1e-6);
  EXPECT_NEAR(model.Seconds(kJpeg, 1e30, 2).value(), 0.050, 1e-6);
  EXPECT_NEAR(model.Seconds(kArray, 1, 2).value(), 0.001, 1e-6);
  EXPECT_EQ(model.Find(kJpeg, 1'000)->PeakThreads(16), 6);
}

TEST(PreprocessModelTest, SizesOfOneHalfOctaveShareACurve) {
  PreprocessModel model;
  for (const std::uint64_t bytes : {1024U, 1535U}) model.Observe({.bytes = bytes});
  EXPECT_EQ(model.curve_count(), 1U);
  model.Observe({.bytes = 1536});
  EXPECT_EQ(model.curve_count(), 2U);
  model.Observe({.bytes = 2048});
  EXPECT_EQ(model.curve_count(), 3U);
  model.Observe({.bytes = 0});
  model.Observe({.bytes = 1});
  EXPECT_EQ(model.curve_count(), 4U);
  model.Observe({.bytes = ~std::uint64_t{0}});
  model.Fit();
  EXPECT_GT(model.Seconds(0, 1024, 1).value(), 0);  // of 0 ns each
}

TEST(PreprocessModelTest, FollowsAMachineThatChanges) {
  PreprocessModel model(PreprocessModel::Options{.window = 16});
  for (int i = 0; i < 1000; ++i) model.Observe({.bytes = 1000, .nanoseconds = 1'000'000});
  for (int i = 0; i < 100; ++i) model.Observe({.bytes = 1000, .nanoseconds = 3'000'000});
  model.Fit();
  EXPECT_NEAR(model.Seconds(0, 1000, 1).value(), 0.003, 0.0001);
}

TEST(PreprocessModelTest, MemoryIsBoundedAndTheOldestGoes) {
  PreprocessModel model(PreprocessModel::Options{.curves_max = 4, .thread_counts_max = 3});
  for (std::uint64_t transform = 0; transform < 100; ++transform) {
    for (int threads = 1; threads <= 50; ++threads) {
      model.Observe({.transform = transform, .bytes = 1000, .threads = threads});
      ASSERT_LE(model.curve_count(), 4U);
    }
  }
  const auto rows = model.ToRows();
  ASSERT_EQ(rows.size(), 12U);
  EXPECT_EQ(rows.front().transform, 96U);
  EXPECT_EQ(rows.front().threads, 48);
  EXPECT_EQ(rows.back().transform, 99U);
  EXPECT_EQ(rows.back().threads, 50);
}

TEST(PreprocessModelTest, RowsMakeTheSameModel) {
  const PreprocessModel model = ThreeCurves();
  const auto rows = model.ToRows();
  const auto again = PreprocessModel::FromRows(rows, {});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again.value().ToRows(), rows);
  for (const double bytes : {1.0, 1e3, 1e4, 1e5, 1e9}) {
    for (const int n : kAll) {
      EXPECT_EQ(again.value().Seconds(kJpeg, bytes, n), model.Seconds(kJpeg, bytes, n));
    }
  }
}

TEST(PreprocessModelTest, ARowThatCannotBeIsNamed) {
  const auto error = [](std::vector<PreprocessRow> rows) {
    const auto made =
        PreprocessModel::FromRows(rows, {.curves_max = 2, .thread_counts_max = 2, .window = 10});
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  const PreprocessRow good{.bytes = 1000, .threads = 1, .count = 1, .seconds = 0.1};
  const auto with = [&](auto change) {
    PreprocessRow row = good;
    change(row);
    return row;
  };
  EXPECT_THAT(error({good, with([](PreprocessRow& r) {
                       r.bytes = 0;
                       r.threads = 2;
                     })}),
              HasSubstr("row 1: bytes"));
  EXPECT_THAT(error({with([](PreprocessRow& r) { r.bytes = std::nan(""); })}),
              HasSubstr("row 0: bytes"));
  EXPECT_EQ(error({with([](PreprocessRow& r) { r.threads = 0; })}),
            "preprocessing model row 0: threads: got 0, must be at least 1");
  EXPECT_THAT(error({with([](PreprocessRow& r) { r.count = 11; })}),
              HasSubstr("must be in [1, 10]"));
  EXPECT_THAT(error({with([](PreprocessRow& r) { r.count = 0; })}), HasSubstr("count: got 0"));
  EXPECT_THAT(error({with([](PreprocessRow& r) { r.seconds = 0; })}), HasSubstr("seconds"));
  EXPECT_THAT(error({with([](PreprocessRow& r) { r.seconds = std::nan(""); })}),
              HasSubstr("seconds"));
  EXPECT_THAT(error({good, good}), HasSubstr("row 1: the same"));
  EXPECT_THAT(error({good, with([](PreprocessRow& r) { r.threads = 2; }),
                     with([](PreprocessRow& r) { r.threads = 3; })}),
              HasSubstr("row 2: more than 2 numbers of threads"));
  EXPECT_THAT(error({good, with([](PreprocessRow& r) { r.transform = 1; }),
                     with([](PreprocessRow& r) { r.transform = 2; })}),
              HasSubstr("row 2: more than 2 pairs"));
}

}  // namespace
}  // namespace headrace
