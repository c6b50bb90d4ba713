#include "codec/image/row_writer.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace headrace {
namespace {

void ExpectTheDefinedFloats(float mean, float std) {
  std::array<std::uint8_t, 256> samples{};
  std::iota(samples.begin(), samples.end(), std::uint8_t{0});
  for (const RowKernels& kernels : SupportedRowKernels()) {
    const Normalizer normalizer({0, mean, 0}, {1, std, 1}, kernels);
    std::array<float, 256> floats{};
    normalizer.Convert(1, samples.data(), samples.size(), floats.data());
    for (const std::uint8_t sample : samples) {
      const float expected = (static_cast<float>(sample) / 255.0F - mean) / std;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[sample]),
                std::bit_cast<std::uint32_t>(expected))
          << kernels.name << ": " << int{sample} << ", mean " << mean << ", std " << std;
      ASSERT_EQ(normalizer.values(1)[sample], expected);
    }
  }
}

TEST(NormalizerTest, EveryKernelGivesTheQuotientToTheBit) {
  Prng prng(1, 0, RandomStream::kAugment, 0);
  ASSERT_NO_FATAL_FAILURE(ExpectTheDefinedFloats(0, 1));
  ASSERT_NO_FATAL_FAILURE(ExpectTheDefinedFloats(0.485F, 0.229F));
  for (int i = 0; i < 2000; ++i) {
    const auto mean = static_cast<float>(2 * prng.Uniform() - 1);
    ASSERT_NO_FATAL_FAILURE(
        ExpectTheDefinedFloats(mean, static_cast<float>(prng.Uniform() + 1e-6)));
  }
}

TEST(NormalizerTest, AnExtremeDeviationIsDividedByToo) {
  using Limits = std::numeric_limits<float>;
  for (const float std : {Limits::denorm_min(), Limits::min(), Limits::max(), 1e-38F, 3e38F}) {
    for (const float mean : {0.0F, 0.5F, Limits::max(), -Limits::max(), Limits::denorm_min()}) {
      ASSERT_NO_FATAL_FAILURE(ExpectTheDefinedFloats(mean, std));
    }
  }
}

}  // namespace
}  // namespace headrace
