#include "codec/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/units.h"

// One binary for every processor: the hot loops are compiled for several and chosen at start. Not
// under sanitizers, which run before the choice can be made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HEADRACE_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define HEADRACE_CLONES
#endif

namespace headrace {
namespace {

constexpr int kWeightBits = 22;  // as Pillow: 32 bits minus 8 of pixel and 2 of headroom
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);
constexpr std::size_t kPixelBytes = 4;
constexpr std::size_t kVectorBytes = 16;

// Eight bytes of two pixels, and types for sums of them. In these two steps the compiler lowers
// them well to the processor's vectors; they never cross a function boundary.
constexpr std::size_t kLanes = 8;
using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));
using Words = std::uint16_t __attribute__((vector_size(kLanes * 2)));
using Sums = std::int32_t __attribute__((vector_size(kLanes * 4)));

// The bilinear filter: a hat one pixel wide on either side.
double HatWeight(double distance) {
  const double x = std::fabs(distance);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Both passes: out[i] = sum over t of weights[t] * inputs(t)[i], rounded, in [0, 255]. Weights are
// not negative; many of them may sum to a little above 2^22, and so exceed 255.
HEADRACE_CLONES void CombineRows(const std::uint8_t* const* rows, const std::int32_t* weights,
                                 std::size_t taps, std::size_t bytes, std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; i += kLanes) {
    Sums sums = Sums{} + kHalf;
    for (std::size_t t = 0; t < taps; ++t) {
      Bytes pixels;
      std::memcpy(&pixels, rows[t] + i, sizeof(pixels));
      sums += __builtin_convertvector(__builtin_convertvector(pixels, Words), Sums) * weights[t];
    }
    sums >>= kWeightBits;
    sums = sums > 255 ? Sums{} + 255 : sums;
    const Bytes rounded = __builtin_convertvector(__builtin_convertvector(sums, Words), Bytes);
    std::memcpy(out + i, &rounded, sizeof(rounded));
  }
}

// `quads`: the inputs of an output column, each of four pixels, one of each row.
HEADRACE_CLONES void CombineColumns(const AxisFilter& filter, const std::uint8_t* quads,
                                    std::uint8_t* const* out) {
  std::uint8_t* const to[] = {out[0], out[1], out[2], out[3]};
  const std::uint32_t outputs = filter.outputs();
  for (std::uint32_t x = 0; x < outputs; ++x) {
    const std::span<const std::int32_t> span = filter.weights(x);
    const std::int32_t* weights = span.data();
    const std::size_t taps = span.size();
    const std::uint8_t* quad = quads + kVectorBytes * filter.first(x);
    Sums upper = Sums{} + kHalf;  // rows 0 and 1
    Sums lower = Sums{} + kHalf;  // rows 2 and 3
    for (std::size_t t = 0; t < taps; ++t, quad += kVectorBytes) {
      Bytes pixels;
      std::memcpy(&pixels, quad, sizeof(pixels));
      upper += __builtin_convertvector(__builtin_convertvector(pixels, Words), Sums) * weights[t];
      std::memcpy(&pixels, quad + kLanes, sizeof(pixels));
      lower += __builtin_convertvector(__builtin_convertvector(pixels, Words), Sums) * weights[t];
    }
    upper >>= kWeightBits;
    lower >>= kWeightBits;
    upper = upper > 255 ? Sums{} + 255 : upper;
    lower = lower > 255 ? Sums{} + 255 : lower;
    const Bytes rounded[2] = {
        __builtin_convertvector(__builtin_convertvector(upper, Words), Bytes),
        __builtin_convertvector(__builtin_convertvector(lower, Words), Bytes)};
    for (std::size_t r = 0; r < Resampler::kRowsAtOnce; ++r) {
      std::memcpy(to[r] + x * kPixelBytes,
                  reinterpret_cast<const std::uint8_t*>(rounded) + r * kPixelBytes, kPixelBytes);
    }
  }
}

// Interleaves the pixels of four rows.
HEADRACE_CLONES void Interleave(const std::uint8_t* const* rows, std::size_t pixels,
                                std::uint8_t* quads) {
  for (std::size_t x = 0; x < pixels; ++x) {
    for (std::size_t r = 0; r < Resampler::kRowsAtOnce; ++r) {
      std::memcpy(quads + x * kVectorBytes + r * kPixelBytes, rows[r] + x * kPixelBytes,
                  kPixelBytes);
    }
  }
}

}  // namespace

void AxisFilter::Prepare(const AxisSpan& span, unsigned halvings) {
  const double limit = static_cast<double>(span.end - span.begin);
  const double scale = limit / static_cast<double>(span.outputs_total);
  const double stretch = std::max(scale, 1.0);

  identity_ = scale == 1.0 && halvings == 0;
  first_.resize(span.outputs);
  count_.resize(span.outputs);
  const std::uint64_t pixels_max = PixelsMax(span);
  taps_max_ = static_cast<std::uint32_t>(TapsMax(span, halvings));
  weights_.resize(std::size_t{span.outputs} * taps_max_);
  real_weights_.resize(pixels_max);
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < span.outputs; ++i) {
    const double output = static_cast<double>(span.outputs_first + i);
    const double middle = (output + 0.5) * scale;
    // Casts round towards zero; adding a half rounds to nearest. Order and association of every
    // operation here are Pillow's: the last bit of a weight depends on them.
    const auto low = static_cast<std::uint32_t>(std::max(middle - stretch + 0.5, 0.0));
    const auto high = static_cast<std::uint32_t>(std::min(middle + stretch + 0.5, limit));
    HEADRACE_CHECK(low < high && high - low <= pixels_max);
    first_[i] = (span.begin + low) >> halvings;
    count_[i] = StoreWeights({.middle = middle, .stretch = stretch, .low = low, .high = high},
                             span.begin, halvings, weights_.data() + std::size_t{i} * taps_max_);
    last = std::max(last, first_[i] + count_[i]);
  }
  input_begin_ = first_.front();
  input_end_ = last;
  for (std::uint32_t& first : first_) first -= input_begin_;
}

std::uint32_t AxisFilter::StoreWeights(const Hat& hat, std::uint32_t begin, unsigned halvings,
                                       std::int32_t* weights) {
  const double per_stretch = 1.0 / hat.stretch;
  const std::uint32_t pixels = hat.high - hat.low;
  double sum = 0.0;
  for (std::uint32_t p = 0; p < pixels; ++p) {
    real_weights_[p] =
        HatWeight((static_cast<double>(p + hat.low) - hat.middle + 0.5) * per_stretch);
    sum += real_weights_[p];
  }
  std::uint32_t count = 0;
  for (std::uint32_t p = 0; p < pixels;) {
    const std::uint32_t input = (begin + hat.low + p) >> halvings;
    double share = 0.0;
    for (; p < pixels && (begin + hat.low + p) >> halvings == input; ++p) {
      share += sum != 0.0 ? real_weights_[p] / sum : 0.0;
    }
    HEADRACE_CHECK(count < taps_max_);
    // NOLINTNEXTLINE(bugprone-incorrect-roundings): Pillow's rounding, of what is not negative
    weights[count++] = static_cast<std::int32_t>(0.5 + share * (1 << kWeightBits));
  }
  // The last input is often at the edge of the filter, with weight 0: do not decode it.
  while (count > 1 && weights[count - 1] == 0) --count;
  return count;
}

std::uint64_t AxisFilter::PixelsMax(const AxisSpan& span) {
  const double scale =
      static_cast<double>(span.end - span.begin) / static_cast<double>(span.outputs_total);
  return static_cast<std::uint64_t>(std::ceil(std::max(scale, 1.0))) * 2 + 1;
}

std::uint64_t AxisFilter::TapsMax(const AxisSpan& span, unsigned halvings) {
  const std::uint64_t pixels_max = PixelsMax(span);
  // A range of stored pixels that begins inside a scaled pixel touches one more scaled pixel.
  return halvings == 0 ? pixels_max : ((pixels_max - 1) >> halvings) + 2;
}

std::uint64_t AxisFilter::MemoryBytes(const AxisSpan& span, unsigned halvings) {
  const std::uint64_t an_output =
      TapsMax(span, halvings) * sizeof(std::int32_t) + 2 * sizeof(std::uint32_t);
  return span.outputs * an_output + PixelsMax(span) * sizeof(double);
}

std::size_t AxisFilter::memory_bytes() const {
  return weights_.capacity() * sizeof(std::int32_t) + real_weights_.capacity() * sizeof(double) +
         (first_.capacity() + count_.capacity()) * sizeof(std::uint32_t);
}

std::uint8_t* ScratchBuffer::Reserve(std::size_t bytes) {
  if (bytes > size_) {
    Release();
    memory_.reset(ScratchAllocator<std::uint8_t>().allocate(bytes));
    size_ = bytes;
  }
  return memory_.get();
}

void ScratchBuffer::Release() {
  memory_.reset();
  size_ = 0;
}

Resampler::Order Resampler::OrderOf(const AxisSpan& x, const AxisSpan& y) {
  const auto lost = [](const AxisSpan& span) {
    return static_cast<std::int64_t>(span.end - span.begin) -
           static_cast<std::int64_t>(span.outputs_total);
  };
  return lost(y) > 0 && lost(y) > 2 * lost(x) ? Order::kRowsFirst : Order::kColumnsFirst;
}

void Resampler::Begin(const AxisFilter& horizontal, const AxisFilter& vertical, Order order,
                      Input input) {
  HEADRACE_CHECK(std::uint64_t{input.lead} + horizontal.inputs() <= input.row_pixels);
  horizontal_ = &horizontal;
  vertical_ = &vertical;
  order_ = order;
  lead_bytes_ = input.lead * kPixelBytes;
  pushed_ = 0;
  combined_ = 0;
  collected_ = 0;
  ready_ = 0;
  given_ = 0;
  // An output that is not ready lacks at least its last row, so fewer than taps_max() rows wait for
  // it when the next ones arrive.
  ring_rows_ = vertical.taps_max() + kRowsAtOnce;
  // A vector that begins in a row may end past it.
  const std::size_t input_row_bytes =
      RoundUp(input.row_pixels * kPixelBytes, kVectorBytes) + kVectorBytes;
  output_row_bytes_ = RoundUp(horizontal.outputs() * kPixelBytes, kVectorBytes);
  ring_row_bytes_ = order == Order::kColumnsFirst ? output_row_bytes_ : input_row_bytes;
  four_row_bytes_ = input_row_bytes;
  ring_.Reserve(ring_row_bytes_ * ring_rows_);
  four_.Reserve(four_row_bytes_ * kRowsAtOnce);
  quads_.Reserve(horizontal.inputs() * kVectorBytes);
  output_.Reserve(output_row_bytes_ * kRowsAtOnce);
  taps_.resize(vertical.taps_max());
}

std::uint8_t* Resampler::input(std::uint32_t row) {
  return order_ == Order::kColumnsFirst ? four_row(row) : ring_row(pushed_ + row);
}

void Resampler::Push(std::uint32_t count) {
  HEADRACE_CHECK(count >= 1 && count <= kRowsAtOnce);
  if (order_ == Order::kColumnsFirst) {
    const std::uint8_t* in[kRowsAtOnce];
    std::uint8_t* out[kRowsAtOnce];
    for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) {
      // Rows past the end repeat the last one, into ring rows that no output uses.
      in[r] = four_row(std::min(r, count - 1)) + lead_bytes_;
      out[r] = ring_row(pushed_ + r);
    }
    CombineFour(in, out);
  }
  pushed_ += count;
}

const std::uint8_t* Resampler::Next() {
  if (order_ == Order::kColumnsFirst) {
    return CombineNext(0, horizontal_->outputs(), output_.data()) ? output_.data() : nullptr;
  }
  if (given_ == ready_) {
    while (collected_ < kRowsAtOnce &&
           CombineNext(lead_bytes_, horizontal_->inputs(), four_row(collected_))) {
      ++collected_;
    }
    const bool last = combined_ == vertical_->outputs();
    if (collected_ == 0 || (collected_ < kRowsAtOnce && !last)) return nullptr;
    const std::uint8_t* in[kRowsAtOnce];
    std::uint8_t* out[kRowsAtOnce];
    for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) {
      in[r] = four_row(std::min(r, collected_ - 1));
      out[r] = output_.data() + r * output_row_bytes_;
    }
    CombineFour(in, out);
    ready_ = std::exchange(collected_, 0);
    given_ = 0;
  }
  return output_.data() + given_++ * output_row_bytes_;
}

bool Resampler::CombineNext(std::size_t lead_bytes, std::uint32_t pixels, std::uint8_t* out) {
  if (combined_ == vertical_->outputs()) return false;
  const std::span<const std::int32_t> weights = vertical_->weights(combined_);
  const std::uint32_t first = vertical_->first(combined_);
  if (first + weights.size() > pushed_) return false;
  for (std::uint32_t t = 0; t < weights.size(); ++t) taps_[t] = ring_row(first + t) + lead_bytes;
  CombineRows(taps_.data(), weights.data(), weights.size(), pixels * kPixelBytes, out);
  ++combined_;
  return true;
}

void Resampler::CombineFour(const std::uint8_t* const* in, std::uint8_t* const* out) {
  Interleave(in, horizontal_->inputs(), quads_.data());
  CombineColumns(*horizontal_, quads_.data(), out);
}

std::uint64_t Resampler::MemoryBytes(const Framing& framing, std::uint32_t row_pixels) {
  const std::uint64_t input_row = RoundUp(row_pixels * kPixelBytes, kVectorBytes) + kVectorBytes;
  const std::uint64_t output_row = RoundUp(framing.x.outputs * kPixelBytes, kVectorBytes);
  const std::uint64_t ring_row =
      OrderOf(framing.x, framing.y) == Order::kColumnsFirst ? output_row : input_row;
  const std::uint64_t taps = AxisFilter::TapsMax(framing.y, framing.halvings);
  return ring_row * (taps + kRowsAtOnce) + (input_row + output_row) * kRowsAtOnce +
         row_pixels * kVectorBytes + taps * sizeof(void*);
}

std::size_t Resampler::memory_bytes() const {
  return ring_.size() + four_.size() + quads_.size() + output_.size() +
         taps_.capacity() * sizeof(void*);
}

}  // namespace headrace
