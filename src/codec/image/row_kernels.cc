#include "codec/image/row_kernels.h"

#include <cstring>

#include "codec/image/resample.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {
namespace {

constexpr int kHalf = 1 << (kWeightBits - 1);

// Addresses of input t of a sum.
struct PixelsOfColumns {
  const std::uint8_t* first;
  const std::uint8_t* operator()(std::size_t t) const { return first + t * kSamplesAtOnce; }
};
struct PartsOfRows {
  const std::uint8_t* const* rows;
  std::size_t offset;
  const std::uint8_t* operator()(std::size_t t) const { return rows[t] + offset; }
};

// --- any processor ------------------------------------------------------------------------------

namespace portable {

using Column = std::uint8_t __attribute__((vector_size(kColumnRows)));

// In each of four rounds the rows of the first half and those of the second half interleave: the
// number of a sample, 16 * row + column, is rotated by one bit. Four bits make row and column
// change places.
void Transpose(const std::uint8_t* const* in, std::uint8_t* const* out) {
  constexpr std::size_t kHalfRows = kColumnRows / 2;
  Column from[kColumnRows];
  Column to[kColumnRows];
  for (std::size_t r = 0; r < kColumnRows; ++r) std::memcpy(&from[r], in[r], sizeof(Column));
  for (int round = 0; round < 4; ++round) {
    for (std::size_t r = 0; r < kHalfRows; ++r) {
      to[2 * r] = __builtin_shufflevector(from[r], from[r + kHalfRows], 0, 16, 1, 17, 2, 18, 3, 19,
                                          4, 20, 5, 21, 6, 22, 7, 23);
      to[2 * r + 1] = __builtin_shufflevector(from[r], from[r + kHalfRows], 8, 24, 9, 25, 10, 26,
                                              11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::memcpy(from, to, sizeof(from));
  }
  for (std::size_t r = 0; r < kColumnRows; ++r) std::memcpy(out[r], &from[r], sizeof(Column));
}

void RowsToColumns(const std::uint8_t* const* rows, std::size_t bytes, std::uint8_t* columns) {
  const std::uint8_t* in[kColumnRows];
  std::uint8_t* out[kColumnRows];
  for (std::size_t i = 0; i < bytes; i += kColumnRows) {
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      in[r] = rows[r] + i;
      out[r] = columns + (i + r) * kColumnRows;
    }
    Transpose(in, out);
  }
}

void ColumnsToRows(const std::uint8_t* columns, std::size_t bytes, std::uint8_t* const* rows) {
  const std::uint8_t* in[kColumnRows];
  std::uint8_t* out[kColumnRows];
  for (std::size_t i = 0; i < bytes; i += kColumnRows) {
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      in[r] = columns + (i + r) * kColumnRows;
      out[r] = rows[r] + i;
    }
    Transpose(in, out);
  }
}

// The sums of one column, or of as many bytes of rows.
template <typename Inputs>
void Sum(const Inputs& inputs, std::span<const std::int32_t> weights, std::size_t at,
         std::uint8_t* out) {
  std::int32_t sums[kColumnRows];
  for (std::int32_t& sum : sums) sum = kHalf;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    const std::uint8_t* input = inputs(t) + at;
    for (std::size_t i = 0; i < kColumnRows; ++i) sums[i] += input[i] * weights[t];
  }
  for (std::size_t i = 0; i < kColumnRows; ++i) {
    const std::int32_t rounded = sums[i] >> kWeightBits;
    out[i] = static_cast<std::uint8_t>(rounded > 255 ? 255 : rounded);
  }
}

void CombineRows(const std::uint8_t* const* rows, std::span<const std::int32_t> weights,
                 std::size_t bytes, std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; i += kSamplesAtOnce) {
    for (std::size_t at = 0; at < kSamplesAtOnce; at += kColumnRows) {
      Sum(PartsOfRows{rows, i}, weights, at, out + i + at);
    }
  }
}

void CombineColumns(const AxisFilter& filter, const std::uint8_t* columns,
                    const SamplePlaces& places, std::uint8_t* out) {
  std::ptrdiff_t place = places.first;
  for (std::uint32_t x = 0; x < filter.outputs(); ++x, place += places.pixel_step) {
    const PixelsOfColumns inputs{columns + kSamplesAtOnce * filter.first(x)};
    for (std::ptrdiff_t c = 0; c < 3; ++c) {
      Sum(inputs, filter.weights(x), static_cast<std::size_t>(c) * kColumnRows,
          out + (place + c * places.channel_step) * std::ptrdiff_t{kColumnRows});
    }
  }
}

void ToFloats(const std::uint8_t* samples, std::size_t count, const ChannelValues& values,
              float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = values.of[samples[i]];
}

constexpr RowKernels kKernels{.name = "portable",
                              .rows_to_columns = RowsToColumns,
                              .columns_to_rows = ColumnsToRows,
                              .combine_rows = CombineRows,
                              .combine_columns = CombineColumns,
                              .to_floats = ToFloats};

}  // namespace portable

// --- x86-64 with AVX2 and FMA -------------------------------------------------------------------

#if defined(__x86_64__)

#define HEADRACE_AVX2 __attribute__((target("avx2,fma")))

namespace avx2 {

// Transposes 16 x 16 samples in the lower halves of `rows`, and others in their upper halves: see
// portable::Transpose().
HEADRACE_AVX2 inline void Transpose(__m256i (&rows)[kColumnRows]) {
  constexpr std::size_t kHalfRows = kColumnRows / 2;
  __m256i next[kColumnRows];
  for (int round = 0; round < 4; ++round) {
    for (std::size_t r = 0; r < kHalfRows; ++r) {
      next[2 * r] = _mm256_unpacklo_epi8(rows[r], rows[r + kHalfRows]);
      next[2 * r + 1] = _mm256_unpackhi_epi8(rows[r], rows[r + kHalfRows]);
    }
    for (std::size_t r = 0; r < kColumnRows; ++r) rows[r] = next[r];
  }
}

HEADRACE_AVX2 inline __m128i* At(std::uint8_t* address) {
  return reinterpret_cast<__m128i*>(address);
}

HEADRACE_AVX2 void RowsToColumns(const std::uint8_t* const* rows, std::size_t bytes,
                                 std::uint8_t* columns) {
  __m256i all[kColumnRows];
  for (std::size_t i = 0; i < bytes; i += kTransposedAtOnce) {
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      all[r] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[r] + i));
    }
    Transpose(all);
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      std::uint8_t* lower = columns + (i + r) * kColumnRows;
      std::uint8_t* upper = lower + kColumnRows * kColumnRows;
      _mm_storeu_si128(At(lower), _mm256_castsi256_si128(all[r]));
      _mm_storeu_si128(At(upper), _mm256_extracti128_si256(all[r], 1));
    }
  }
}

HEADRACE_AVX2 void ColumnsToRows(const std::uint8_t* columns, std::size_t bytes,
                                 std::uint8_t* const* rows) {
  __m256i all[kColumnRows];
  for (std::size_t i = 0; i < bytes; i += kTransposedAtOnce) {
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      const std::uint8_t* lower = columns + (i + r) * kColumnRows;
      const std::uint8_t* upper = lower + kColumnRows * kColumnRows;
      all[r] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(upper),
                                   reinterpret_cast<const __m128i*>(lower));
    }
    Transpose(all);
    for (std::size_t r = 0; r < kColumnRows; ++r) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows[r] + i), all[r]);
    }
  }
}

HEADRACE_AVX2 inline __m256i Product(const std::uint8_t* input, __m256i weight) {
  const __m128i samples = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(input));
  return _mm256_mullo_epi32(_mm256_cvtepu8_epi32(samples), weight);
}

// Stores the 16 rounded sums of `low` and `high`; saturates twice, at 65535 and at 255.
HEADRACE_AVX2 inline void Store(__m256i low, __m256i high, std::uint8_t* out) {
  const __m256i words = _mm256_packus_epi32(_mm256_srai_epi32(low, kWeightBits),
                                            _mm256_srai_epi32(high, kWeightBits));
  // Packing works on halves of registers: they hold low, high, low, high.
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0b11'01'10'00);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(out),
      _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}

// The sums of kSamplesAtOnce samples: a third of them go to each of `out`. There is at least one
// weight; a loop that knows it needs no copies of its registers.
template <typename Inputs>
HEADRACE_AVX2 inline void Sum(const Inputs& inputs, std::span<const std::int32_t> weights,
                              std::uint8_t* out0, std::uint8_t* out1, std::uint8_t* out2) {
  const __m256i half = _mm256_set1_epi32(kHalf);
  __m256i a = half;
  __m256i b = half;
  __m256i c = half;
  __m256i d = half;
  __m256i e = half;
  __m256i f = half;
  std::size_t t = 0;
  do {
    const std::uint8_t* input = inputs(t);
    const __m256i weight = _mm256_set1_epi32(weights[t]);
    a = _mm256_add_epi32(a, Product(input, weight));
    b = _mm256_add_epi32(b, Product(input + 8, weight));
    c = _mm256_add_epi32(c, Product(input + 16, weight));
    d = _mm256_add_epi32(d, Product(input + 24, weight));
    e = _mm256_add_epi32(e, Product(input + 32, weight));
    f = _mm256_add_epi32(f, Product(input + 40, weight));
  } while (++t < weights.size());
  Store(a, b, out0);
  Store(c, d, out1);
  Store(e, f, out2);
}

HEADRACE_AVX2 void CombineRows(const std::uint8_t* const* rows,
                               std::span<const std::int32_t> weights, std::size_t bytes,
                               std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; i += kSamplesAtOnce) {
    Sum(PartsOfRows{rows, i}, weights, out + i, out + i + 16, out + i + 32);
  }
}

HEADRACE_AVX2 void CombineColumns(const AxisFilter& filter, const std::uint8_t* columns,
                                  const SamplePlaces& places, std::uint8_t* out) {
  const std::ptrdiff_t channel_step = places.channel_step * std::ptrdiff_t{kColumnRows};
  const std::uint32_t outputs = filter.outputs();
  std::ptrdiff_t place = places.first;
  for (std::uint32_t x = 0; x < outputs; ++x, place += places.pixel_step) {
    std::uint8_t* to = out + place * std::ptrdiff_t{kColumnRows};
    Sum(PixelsOfColumns{columns + kSamplesAtOnce * filter.first(x)}, filter.weights(x), to,
        to + channel_step, to + 2 * channel_step);
  }
}

// a / b, rounded as a division rounds: Markstein's correction of a * (1 / b) by its remainder. It
// takes less time than a division, and needs a b whose reciprocal is neither subnormal nor
// infinite.
HEADRACE_AVX2 inline __m256 Quotient(__m256 a, __m256 b, __m256 per_b) {
  const __m256 near = _mm256_mul_ps(a, per_b);
  return _mm256_fmadd_ps(_mm256_fnmadd_ps(near, b, a), per_b, near);
}

HEADRACE_AVX2 void ToFloats(const std::uint8_t* samples, std::size_t count,
                            const ChannelValues& values, float* to) {
  const __m256 full = _mm256_set1_ps(255.0F);
  const __m256 per_full = _mm256_set1_ps(1.0F / 255.0F);
  const __m256 mean = _mm256_set1_ps(values.mean);
  const __m256 std = _mm256_set1_ps(values.std);
  const __m256 per_std = _mm256_set1_ps(values.per_std);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(samples + i));
    const __m256 sample = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight));
    const __m256 share = Quotient(sample, full, per_full);
    _mm256_storeu_ps(to + i, Quotient(_mm256_sub_ps(share, mean), std, per_std));
  }
  portable::ToFloats(samples + i, count - i, values, to + i);
}

constexpr RowKernels kKernels{.name = "AVX2",
                              .rows_to_columns = RowsToColumns,
                              .columns_to_rows = ColumnsToRows,
                              .combine_rows = CombineRows,
                              .combine_columns = CombineColumns,
                              .to_floats = ToFloats};

}  // namespace avx2

constexpr RowKernels kAllKernels[] = {avx2::kKernels, portable::kKernels};

#endif

}  // namespace

std::span<const RowKernels> SupportedRowKernels() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const std::span<const RowKernels> all = kAllKernels;
  return has_avx2 ? all : all.last(1);
#else
  return {&portable::kKernels, 1};
#endif
}

}  // namespace headrace
