#include "codec/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "codec/image/image_decoder.h"

namespace headrace {
namespace {

// Bytes from one row to the next: the vertical pass may read, and a transposition write, past the
// pixels.
constexpr std::uint64_t PaddedRow(std::uint64_t pixels) {
  return RoundUp(pixels * kPixelBytes + kSamplesAtOnce, kColumnRows);
}

// Bytes of the columns of `pixels`.
constexpr std::uint64_t ColumnBytes(std::uint64_t pixels) {
  return RoundUp(pixels * kPixelBytes, kTransposedAtOnce) * kColumnRows;
}

// The bilinear filter: a hat one pixel wide on either side.
double HatWeight(double distance) {
  const double x = std::fabs(distance);
  return x < 1.0 ? 1.0 - x : 0.0;
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

SamplePlaces PlacesOf(RowLayout layout, std::uint32_t pixels) {
  const auto width = static_cast<std::ptrdiff_t>(pixels);
  SamplePlaces places;
  if (layout.channels_first) places = {.pixel_step = 1, .channel_step = width};
  if (layout.flip) {
    places.first = (width - 1) * places.pixel_step;
    places.pixel_step = -places.pixel_step;
  }
  return places;
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
                      Input input, RowLayout layout) {
  HEADRACE_CHECK(std::uint64_t{input.lead} + horizontal.inputs() <= input.row_pixels);
  horizontal_ = &horizontal;
  vertical_ = &vertical;
  order_ = order;
  places_ = PlacesOf(layout, horizontal.outputs());
  lead_bytes_ = input.lead * kPixelBytes;
  pushed_ = 0;
  combined_ = 0;
  collected_ = 0;
  ready_ = 0;
  given_ = 0;
  // An output that is not ready lacks at least its last row, so fewer than taps_max() rows wait for
  // it when the next ones arrive.
  ring_rows_ = vertical.taps_max() + kRowsAtOnce;
  output_row_bytes_ = PaddedRow(horizontal.outputs());
  group_row_bytes_ = PaddedRow(input.row_pixels);
  ring_row_bytes_ = order == Order::kColumnsFirst ? output_row_bytes_ : group_row_bytes_;
  ring_.Reserve(kOffAlignment + ring_row_bytes_ * ring_rows_);
  group_.Reserve(kOffAlignment + group_row_bytes_ * kRowsAtOnce);
  columns_.Reserve(ColumnBytes(horizontal.inputs()));
  output_columns_.Reserve(ColumnBytes(horizontal.outputs()));
  output_.Reserve(output_row_bytes_ * (order == Order::kColumnsFirst ? 1 : kRowsAtOnce));
  taps_.resize(vertical.taps_max());
}

std::uint8_t* Resampler::input(std::uint32_t row) {
  return order_ == Order::kColumnsFirst ? group_row(row) : ring_row(pushed_ + row);
}

void Resampler::Push(std::uint32_t count) {
  HEADRACE_CHECK(count >= 1 && count <= kRowsAtOnce);
  if (order_ == Order::kColumnsFirst) {
    const std::uint8_t* in[kRowsAtOnce];
    std::uint8_t* out[kRowsAtOnce];
    for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) {
      // Rows past the end repeat the last one, into ring rows that no output uses.
      in[r] = group_row(std::min(r, count - 1)) + lead_bytes_;
      out[r] = ring_row(pushed_ + r);
    }
    CombineGroup(in, out);
  }
  pushed_ += count;
}

const std::uint8_t* Resampler::Next() {
  if (order_ == Order::kColumnsFirst) {
    if (vertical_->identity()) return combined_ < pushed_ ? ring_row(combined_++) : nullptr;
    const std::size_t bytes = horizontal_->outputs() * kPixelBytes;
    return CombineNext(0, bytes, output_.data()) ? output_.data() : nullptr;
  }
  if (given_ == ready_) {
    const std::size_t bytes = horizontal_->inputs() * kPixelBytes;
    while (collected_ < kRowsAtOnce && CombineNext(lead_bytes_, bytes, group_row(collected_))) {
      ++collected_;
    }
    const bool last = combined_ == vertical_->outputs();
    if (collected_ == 0 || (collected_ < kRowsAtOnce && !last)) return nullptr;
    const std::uint8_t* in[kRowsAtOnce];
    std::uint8_t* out[kRowsAtOnce];
    for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) {
      in[r] = group_row(std::min(r, collected_ - 1));
      out[r] = output_.data() + r * output_row_bytes_;
    }
    CombineGroup(in, out);
    ready_ = std::exchange(collected_, 0);
    given_ = 0;
  }
  return output_.data() + given_++ * output_row_bytes_;
}

bool Resampler::CombineNext(std::size_t lead_bytes, std::size_t bytes, std::uint8_t* out) {
  if (combined_ == vertical_->outputs()) return false;
  const std::span<const std::int32_t> weights = vertical_->weights(combined_);
  const std::uint32_t first = vertical_->first(combined_);
  if (first + weights.size() > pushed_) return false;
  for (std::uint32_t t = 0; t < weights.size(); ++t) taps_[t] = ring_row(first + t) + lead_bytes;
  kernels_->combine_rows(taps_.data(), weights, bytes, out);
  ++combined_;
  return true;
}

void Resampler::CombineGroup(const std::uint8_t* const* in, std::uint8_t* const* out) {
  kernels_->rows_to_columns(in, horizontal_->inputs() * kPixelBytes, columns_.data());
  kernels_->combine_columns(*horizontal_, columns_.data(), places_, output_columns_.data());
  kernels_->columns_to_rows(output_columns_.data(), horizontal_->outputs() * kPixelBytes, out);
}

std::uint64_t Resampler::MemoryBytes(const Framing& framing, std::uint32_t row_pixels) {
  const std::uint64_t input_row = PaddedRow(row_pixels);
  const std::uint64_t output_row = PaddedRow(framing.x.outputs);
  const std::uint64_t ring_row =
      OrderOf(framing.x, framing.y) == Order::kColumnsFirst ? output_row : input_row;
  const std::uint64_t taps = AxisFilter::TapsMax(framing.y, framing.halvings);
  return 2 * kOffAlignment + ring_row * (taps + kRowsAtOnce) +
         (input_row + output_row) * kRowsAtOnce + ColumnBytes(row_pixels) +
         ColumnBytes(framing.x.outputs) + taps * sizeof(void*);
}

std::size_t Resampler::memory_bytes() const {
  return ring_.size() + group_.size() + columns_.size() + output_columns_.size() + output_.size() +
         taps_.capacity() * sizeof(void*);
}

}  // namespace headrace
