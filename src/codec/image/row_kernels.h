#pragma once

// The inner loops over samples, which are bytes, for the processor at hand.
//
// A column is one sample of each of kColumnRows rows, one after another: one vector register. The
// horizontal pass works on columns, so that all lanes of a vector have the same weight; the
// vertical pass works on rows, for the same reason.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

class AxisFilter;

inline constexpr std::size_t kColumnRows = 16;

// The transpositions take this many samples of each row at once.
inline constexpr std::size_t kTransposedAtOnce = 2 * kColumnRows;

// The vertical pass takes this many samples at once; the horizontal pass the three columns of a
// pixel, which have as many.
inline constexpr std::size_t kSamplesAtOnce = 3 * kColumnRows;

// Where the samples of an output row are: that of channel c of pixel x is at
// first + x * pixel_step + c * channel_step.
struct SamplePlaces {
  std::ptrdiff_t first = 0;
  std::ptrdiff_t pixel_step = 3;
  std::ptrdiff_t channel_step = 1;
};

// How the samples of a channel become floats: (sample / 255 - mean) / std, each operation rounded
// to float.
struct ChannelValues {
  float mean = 0;
  float std = 1;
  float per_std = 1;  // 1 / std
  std::array<float, 256> of{};
};

// Every sum is of weights[t] times input t, rounded from 22-bit fixed point to an integer, at most
// 255. There is at least one weight. None is negative, and they sum to 2^22 up to rounding: many
// may sum to a little more.
//
// All kernels give the same results. Thread safety: the functions may run concurrently.
struct RowKernels {
  std::string_view name;

  // columns[i] = byte i of each of the kColumnRows `rows`. Reads and writes RoundUp(bytes,
  // kTransposedAtOnce) of them. The other function is the inverse.
  void (*rows_to_columns)(const std::uint8_t* const* rows, std::size_t bytes,
                          std::uint8_t* columns);
  void (*columns_to_rows)(const std::uint8_t* columns, std::size_t bytes,
                          std::uint8_t* const* rows);

  // The vertical pass: out[i] = sum over t of weights[t] * rows[t][i]. Reads and writes
  // RoundUp(bytes, kSamplesAtOnce) bytes.
  void (*combine_rows)(const std::uint8_t* const* rows, std::span<const std::int32_t> weights,
                       std::size_t bytes, std::uint8_t* out);

  // The horizontal pass: the columns of all outputs of `filter`, each at its place of `places`,
  // from those of its inputs, which are pixels of three columns.
  void (*combine_columns)(const AxisFilter& filter, const std::uint8_t* columns,
                          const SamplePlaces& places, std::uint8_t* out);

  // to[i] = values.of[samples[i]]. May compute it without divisions: Normalizer checks that the
  // results are the same, as an extreme `std` could make them differ.
  void (*to_floats)(const std::uint8_t* samples, std::size_t count, const ChannelValues& values,
                    float* to);
};

// Those that this processor can run, the fastest first.
std::span<const RowKernels> SupportedRowKernels();

}  // namespace headrace
