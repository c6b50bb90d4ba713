#include "codec/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace headrace {
namespace {

// Three bytes a pixel, row after row.
struct Image {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> bytes;

  [[nodiscard]] std::uint8_t at(std::uint32_t x, std::uint32_t y, std::uint32_t c) const {
    return bytes[(std::size_t{y} * width + x) * 3 + c];
  }
};

Image MakeNoise(std::uint32_t width, std::uint32_t height, Prng& prng) {
  Image image{width, height, std::vector<std::uint8_t>(std::size_t{3} * width * height)};
  for (std::uint8_t& byte : image.bytes) byte = static_cast<std::uint8_t>(prng.Next32() >> 24);
  return image;
}

AxisSpan SpanOf(std::uint32_t begin, std::uint32_t length, std::uint32_t outputs) {
  return {.begin = begin,
          .end = begin + length,
          .outputs_total = outputs,
          .outputs_first = 0,
          .outputs = outputs};
}

// One output sample by the definition: every input, weighted by a hat around the middle, in 22-bit
// fixed point.
std::uint8_t ModelSample(const AxisSpan& span, std::uint64_t output,
                         const std::vector<std::uint8_t>& line) {
  const double scale =
      static_cast<double>(span.end - span.begin) / static_cast<double>(span.outputs_total);
  const double stretch = std::max(scale, 1.0);
  const double middle = (static_cast<double>(span.outputs_first + output) + 0.5) * scale;
  const std::uint32_t length = span.end - span.begin;
  std::vector<double> weights(length);
  double sum = 0;
  for (std::uint32_t i = 0; i < length; ++i) {
    weights[i] = std::max(0.0, 1 - std::fabs((i + 0.5 - middle) / stretch));
    sum += weights[i];
  }
  std::int64_t value = 1 << 21;
  for (std::uint32_t i = 0; i < length; ++i) {
    value += std::llround(weights[i] / sum * (1 << 22)) * line[span.begin + i];
  }
  return static_cast<std::uint8_t>(std::min<std::int64_t>(value >> 22, 255));
}

Image ModelColumns(const Image& image, const AxisSpan& x) {
  Image out{x.outputs, image.height,
            std::vector<std::uint8_t>(std::size_t{3} * x.outputs * image.height)};
  std::vector<std::uint8_t> line(image.width);
  for (std::uint32_t row = 0; row < image.height; ++row) {
    for (std::uint32_t c = 0; c < 3; ++c) {
      for (std::uint32_t i = 0; i < image.width; ++i) line[i] = image.at(i, row, c);
      for (std::uint32_t o = 0; o < x.outputs; ++o) {
        out.bytes[(std::size_t{row} * x.outputs + o) * 3 + c] = ModelSample(x, o, line);
      }
    }
  }
  return out;
}

Image Transposed(const Image& image) {
  Image out{image.height, image.width, std::vector<std::uint8_t>(image.bytes.size())};
  for (std::uint32_t y = 0; y < image.height; ++y) {
    for (std::uint32_t x = 0; x < image.width; ++x) {
      std::memcpy(out.bytes.data() + (std::size_t{x} * image.height + y) * 3,
                  image.bytes.data() + (std::size_t{y} * image.width + x) * 3, 3);
    }
  }
  return out;
}

Image Model(const Image& image, const AxisSpan& x, const AxisSpan& y, Resampler::Order order) {
  if (order == Resampler::Order::kColumnsFirst) {
    return Transposed(ModelColumns(Transposed(ModelColumns(image, x)), y));
  }
  return ModelColumns(Transposed(ModelColumns(Transposed(image), y)), x);
}

// The rows of `image` in `layout`.
std::vector<std::uint8_t> InLayout(const Image& image, RowLayout layout) {
  std::vector<std::uint8_t> bytes;
  for (std::uint32_t y = 0; y < image.height; ++y) {
    for (std::uint32_t i = 0; i < 3 * image.width; ++i) {
      const std::uint32_t x = layout.channels_first ? i % image.width : i / 3;
      const std::uint32_t c = layout.channels_first ? i / image.width : i % 3;
      bytes.push_back(image.at(layout.flip ? image.width - 1 - x : x, y, c));
    }
  }
  return bytes;
}

// Runs `resampler` as the codec does; rows have `lead` extra pixels before and 3 after.
Image Resample(Resampler& resampler, const Image& image, const AxisSpan& x, const AxisSpan& y,
               std::uint32_t lead, RowLayout layout = {}) {
  AxisFilter horizontal;
  AxisFilter vertical;
  horizontal.Prepare(x);
  vertical.Prepare(y);
  const std::uint32_t row_pixels = lead + horizontal.inputs() + 3;
  resampler.Begin(horizontal, vertical, Resampler::OrderOf(x, y),
                  {.row_pixels = row_pixels, .lead = lead}, layout);
  Image out{x.outputs, y.outputs, {}};
  for (std::uint32_t row = vertical.input_begin(); row < vertical.input_end();) {
    const std::uint32_t count = std::min(Resampler::kRowsAtOnce, vertical.input_end() - row);
    for (std::uint32_t r = 0; r < count; ++r) {
      std::memset(resampler.input(r), 0xAB, std::size_t{3} * row_pixels);
      std::memcpy(
          resampler.input(r) + std::size_t{3} * lead,
          image.bytes.data() + (std::size_t{row + r} * image.width + horizontal.input_begin()) * 3,
          std::size_t{3} * horizontal.inputs());
    }
    resampler.Push(count);
    while (const std::uint8_t* pixels = resampler.Next()) {
      out.bytes.insert(out.bytes.end(), pixels, pixels + std::size_t{3} * x.outputs);
    }
    row += count;
  }
  EXPECT_EQ(out.bytes.size(), std::size_t{3} * x.outputs * y.outputs);
  return out;
}

void ExpectTheDefinition(Resampler& resampler, const Image& image, const AxisSpan& x,
                         const AxisSpan& y, std::uint32_t lead, RowLayout layout) {
  const Image expected = Model(image, x, y, Resampler::OrderOf(x, y));
  const Image result = Resample(resampler, image, x, y, lead, layout);
  ASSERT_EQ(result.bytes, InLayout(expected, layout))
      << x.end - x.begin << " x " << y.end - y.begin << " to " << x.outputs << " x " << y.outputs;
}

// Runs on every kind of kernels that this processor has.
class ResampleKernelsTest : public testing::TestWithParam<RowKernels> {};

TEST_P(ResampleKernelsTest, EqualsTheDefinitionForRandomBoxesAndSizes) {
  Prng prng(7, 0, RandomStream::kAugment, 0);
  Resampler resampler(GetParam());
  for (int i = 0; i < 200; ++i) {
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(prng.Below(n)); };
    const Image image = MakeNoise(1 + below(70), 1 + below(90), prng);
    const std::uint32_t left = below(image.width);
    const std::uint32_t top = below(image.height);
    AxisSpan x = SpanOf(left, 1 + below(image.width - left), 1 + below(40));
    AxisSpan y = SpanOf(top, 1 + below(image.height - top), 1 + below(40));
    if (i % 2 == 1) {  // only the middle of the result
      x.outputs_first = x.outputs / 3;
      x.outputs -= static_cast<std::uint32_t>(x.outputs_first);
      y.outputs_first = y.outputs / 2;
      y.outputs = 1;
    }
    const RowLayout layout{.channels_first = below(2) == 0, .flip = below(2) == 0};
    ASSERT_NO_FATAL_FAILURE(ExpectTheDefinition(resampler, image, x, y, below(5), layout)) << i;
  }
}

TEST_P(ResampleKernelsTest, EqualsTheDefinitionForThinTinyAndEqualSides) {
  Prng prng(8, 0, RandomStream::kAugment, 0);
  Resampler resampler(GetParam());
  for (const std::uint32_t width : {1U, 2U, 15U, 16U, 17U, 131U}) {
    for (const std::uint32_t height : {1U, 16U, 33U}) {
      const Image image = MakeNoise(width, height, prng);
      for (const auto& [to_width, to_height] :
           {std::pair{1U, 1U}, {width, height}, {width, 5U}, {7U, height}, {37U, 34U}}) {
        for (const bool flip : {false, true}) {
          ASSERT_NO_FATAL_FAILURE(ExpectTheDefinition(resampler, image, SpanOf(0, width, to_width),
                                                      SpanOf(0, height, to_height), 1,
                                                      {.channels_first = true, .flip = flip}));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ResampleKernelsTest,
                         testing::ValuesIn(SupportedRowKernels().begin(),
                                           SupportedRowKernels().end()),
                         [](const auto& kernels) { return std::string(kernels.param.name); });

TEST(ResampleTest, TheSameSizeIsTheSameImage) {
  Prng prng(3, 0, RandomStream::kAugment, 0);
  const Image image = MakeNoise(13, 9, prng);
  Resampler resampler;
  EXPECT_EQ(Resample(resampler, image, SpanOf(0, 13, 13), SpanOf(0, 9, 9), 0).bytes, image.bytes);
}

TEST(ResampleTest, AFlatImageStaysFlatHoweverManyPixelsAreAveraged) {
  Resampler resampler;
  for (const std::uint8_t value : std::initializer_list<std::uint8_t>{0, 1, 254, 255}) {
    const Image image{3, 40000, std::vector<std::uint8_t>(std::size_t{3} * 3 * 40000, value)};
    const Image result = Resample(resampler, image, SpanOf(0, 3, 2), SpanOf(0, 40000, 1), 0);
    EXPECT_EQ(result.bytes, std::vector<std::uint8_t>(6, value));
  }
}

TEST(ResampleTest, MemoryHoldsTheRowsThatOutputsWaitForNotTheImage) {
  Prng prng(4, 0, RandomStream::kAugment, 0);
  Resampler resampler;
  const Image image = MakeNoise(64, 20000, prng);
  const Image result = Resample(resampler, image, SpanOf(0, 64, 32), SpanOf(0, 20000, 10000), 0);
  EXPECT_EQ(result.height, 10000U);
  EXPECT_LT(resampler.memory_bytes(), 20U << 10);
}

TEST(ResampleTest, RowsComeFirstWhereMoreThanTwiceAsManyRowsAsColumnsGo) {
  const auto order = [](std::uint32_t w, std::uint32_t h, std::uint32_t to_w, std::uint32_t to_h) {
    return Resampler::OrderOf(SpanOf(0, w, to_w), SpanOf(0, h, to_h));
  };
  EXPECT_EQ(order(100, 100, 50, 50), Resampler::Order::kColumnsFirst);
  EXPECT_EQ(order(100, 200, 50, 100), Resampler::Order::kColumnsFirst);
  EXPECT_EQ(order(100, 201, 50, 100), Resampler::Order::kRowsFirst);
  EXPECT_EQ(order(50, 101, 100, 100), Resampler::Order::kRowsFirst);
  EXPECT_EQ(order(50, 100, 100, 100), Resampler::Order::kColumnsFirst);
}

TEST(AxisFilterTest, OnlyAWholeUnscaledSpanIsTheIdentity) {
  AxisFilter filter;
  AxisSpan span = SpanOf(3, 10, 10);
  filter.Prepare(span);
  EXPECT_TRUE(filter.identity());
  EXPECT_EQ(filter.input_begin(), 3U);
  EXPECT_EQ(filter.input_end(), 13U);
  filter.Prepare(SpanOf(3, 10, 11));
  EXPECT_FALSE(filter.identity());
  filter.Prepare(span, 1);
  EXPECT_FALSE(filter.identity());
}

// The weights of `filter` for `output`, one of each of `inputs` input pixels.
std::vector<std::int64_t> AllWeights(const AxisFilter& filter, std::uint32_t output,
                                     std::uint32_t inputs) {
  std::vector<std::int64_t> all(inputs);
  const std::span<const std::int32_t> weights = filter.weights(output);
  for (std::uint32_t t = 0; t < weights.size(); ++t) {
    all.at(filter.input_begin() + filter.first(output) + t) = weights[t];
  }
  return all;
}

TEST(AxisFilterTest, AScaledPixelWeighsWhatItsPixelsWithinTheSpanWeigh) {
  Prng prng(11, 0, RandomStream::kAugment, 0);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(prng.Below(n)); };
  AxisFilter full;
  AxisFilter scaled;
  for (int i = 0; i < 300; ++i) {
    const unsigned halvings = 1 + below(3);
    const std::uint32_t length = 1 + below(300);
    const std::uint32_t begin = below(length);
    AxisSpan span = SpanOf(begin, 1 + below(length - begin), 1 + below(12));
    span.outputs_first = below(span.outputs);
    span.outputs -= static_cast<std::uint32_t>(span.outputs_first);
    full.Prepare(span);
    scaled.Prepare(span, halvings);
    ASSERT_GE(scaled.input_begin(), span.begin >> halvings);
    ASSERT_LE(scaled.input_end(), Halved(length, halvings));
    for (std::uint32_t output = 0; output < span.outputs; ++output) {
      std::vector<std::int64_t> expected(Halved(length, halvings));
      const std::vector<std::int64_t> pixels = AllWeights(full, output, length);
      for (std::uint32_t p = 0; p < length; ++p) expected[p >> halvings] += pixels[p];
      const std::vector<std::int64_t> weights =
          AllWeights(scaled, output, Halved(length, halvings));
      for (std::uint32_t p = 0; p < weights.size(); ++p) {
        ASSERT_LE(std::abs(weights[p] - expected[p]), 1 << halvings) << "case " << i << " at " << p;
      }
    }
  }
}

TEST(AxisFilterTest, PartOfTheIdentityNeedsNoPixelMoreThanItGives) {
  AxisFilter filter;
  AxisSpan span = SpanOf(0, 256, 256);
  span.outputs_first = 16;
  span.outputs = 223;
  filter.Prepare(span);
  EXPECT_TRUE(filter.identity());
  EXPECT_EQ(filter.input_begin(), 16U);
  EXPECT_EQ(filter.inputs(), 223U);
}

}  // namespace
}  // namespace headrace
