#include "codec/image/row_kernels.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "base/units.h"

namespace headrace {
namespace {

// Buffers have just the sizes that the header tells, so that a sanitizer finds accesses outside.
class RowKernelsTest : public testing::TestWithParam<RowKernels> {
 protected:
  std::vector<std::uint8_t> Noise(std::size_t bytes) {
    std::vector<std::uint8_t> noise(bytes);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(prng_.Next32() >> 24);
    return noise;
  }

  Prng prng_{5, 0, RandomStream::kAugment, 0};
};

TEST_P(RowKernelsTest, ColumnsHoldOneSampleOfEachRowAndTurnBackIntoThem) {
  for (const std::size_t bytes : {1U, 15U, 16U, 17U, 31U, 32U, 33U, 100U}) {
    const std::size_t padded = RoundUp(bytes, kTransposedAtOnce);
    std::vector<std::vector<std::uint8_t>> rows;
    std::vector<std::vector<std::uint8_t>> back(kColumnRows, std::vector<std::uint8_t>(padded));
    std::array<const std::uint8_t*, kColumnRows> from{};
    std::array<std::uint8_t*, kColumnRows> to{};
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      rows.push_back(Noise(padded));
      to[r] = back[r].data();
    }
    for (std::size_t r = 0; r < kColumnRows; ++r) from[r] = rows[r].data();
    std::vector<std::uint8_t> columns(padded * kColumnRows);
    GetParam().rows_to_columns(from.data(), bytes, columns.data());
    for (std::size_t i = 0; i < bytes; ++i) {
      for (std::size_t r = 0; r < kColumnRows; ++r) {
        ASSERT_EQ(columns[i * kColumnRows + r], rows[r][i]) << bytes;
      }
    }
    GetParam().columns_to_rows(columns.data(), bytes, to.data());
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      ASSERT_TRUE(std::equal(rows[r].begin(), rows[r].begin() + static_cast<std::ptrdiff_t>(bytes),
                             back[r].begin()))
          << bytes;
    }
  }
}

TEST_P(RowKernelsTest, SumsAreRoundedAndEndAt255) {
  for (const std::size_t bytes : {1U, 47U, 48U, 49U, 144U}) {
    for (const std::size_t taps : {1U, 2U, 7U}) {
      // The largest sum is a little above 255, as that of rounded weights may be.
      std::vector<std::int32_t> weights(taps);
      for (std::int32_t& weight : weights) {
        weight = static_cast<std::int32_t>((1U << 22) / taps + 9000);
      }
      std::vector<std::vector<std::uint8_t>> rows;
      for (std::size_t t = 0; t < taps; ++t) {
        rows.push_back(Noise(RoundUp(bytes, kSamplesAtOnce)));
        rows.back()[0] = 255;
      }
      std::vector<const std::uint8_t*> from;
      for (const auto& row : rows) from.push_back(row.data());
      std::vector<std::uint8_t> out(RoundUp(bytes, kSamplesAtOnce));
      GetParam().combine_rows(from.data(), weights, bytes, out.data());
      for (std::size_t i = 0; i < bytes; ++i) {
        std::int64_t sum = 1 << 21;
        for (std::size_t t = 0; t < taps; ++t) sum += std::int64_t{weights[t]} * rows[t][i];
        ASSERT_EQ(out[i], std::min<std::int64_t>(sum >> 22, 255)) << bytes << " at " << i;
      }
      EXPECT_EQ(out[0], 255);
    }
  }
}

TEST_P(RowKernelsTest, FloatsEndWhereTheSamplesDo) {
  ChannelValues values{.mean = 0.485F, .std = 0.229F, .per_std = 1 / 0.229F};
  for (unsigned v = 0; v < 256; ++v) {
    values.of[v] = (static_cast<float>(v) / 255.0F - values.mean) / values.std;
  }
  for (std::size_t count = 0; count < 40; ++count) {
    const std::vector<std::uint8_t> samples = Noise(count);
    std::vector<float> floats(count);
    GetParam().to_floats(samples.data(), count, values, floats.data());
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(floats[i], values.of[samples[i]]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowKernelsTest,
                         testing::ValuesIn(SupportedRowKernels().begin(),
                                           SupportedRowKernels().end()),
                         [](const auto& kernels) { return std::string(kernels.param.name); });

}  // namespace
}  // namespace headrace
