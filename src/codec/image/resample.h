#pragma once

// Antialiased bilinear resampling, equal bit for bit to Pillow's Image.resize(BILINEAR) on 8-bit
// images: separable, weights in 22-bit fixed point, 8 bits between the passes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/image/geometry.h"
#include "codec/image/row_kernels.h"
#include "codec/scratch_memory.h"

namespace headrace {

inline constexpr int kWeightBits = 22;  // as Pillow: 32 bits minus 8 of a sample and 2 of headroom

// For each output of an axis, the input pixels that contribute to it, and their weights.
//
// Thread safety: thread-compatible: const calls may be concurrent.
class AxisFilter {
 public:
  // Computes the filter of `span`, reusing memory.
  //
  // With `halvings` the inputs are the pixels of an image that was scaled by 1 / 2^halvings. Each
  // input stands for 2^halvings stored pixels (fewer at the image's end). Its weight is the sum of
  // the weights that its stored pixels within the span have without halvings.
  void Prepare(const AxisSpan& span, unsigned halvings = 0);

  [[nodiscard]] std::uint32_t outputs() const { return static_cast<std::uint32_t>(first_.size()); }

  // Every output is the input pixel at the same position, counted from input_begin().
  [[nodiscard]] bool identity() const { return identity_; }

  // The input pixels that the outputs need: [input_begin, input_end) of the (scaled) image.
  [[nodiscard]] std::uint32_t input_begin() const { return input_begin_; }
  [[nodiscard]] std::uint32_t input_end() const { return input_end_; }
  [[nodiscard]] std::uint32_t inputs() const { return input_end_ - input_begin_; }

  // The first input of `output`, counted from input_begin(). Does not decrease with `output`.
  [[nodiscard]] std::uint32_t first(std::uint32_t output) const { return first_[output]; }

  // Weights of the inputs from first(output) on; they sum to 2^22 up to rounding.
  [[nodiscard]] std::span<const std::int32_t> weights(std::uint32_t output) const {
    return {weights_.data() + std::size_t{output} * taps_max_, count_[output]};
  }

  [[nodiscard]] std::uint32_t taps_max() const { return taps_max_; }  // most inputs of an output
  [[nodiscard]] std::size_t memory_bytes() const;
  // Upper bound of memory_bytes(), known before Prepare().
  static std::uint64_t MemoryBytes(const AxisSpan& span, unsigned halvings);
  // Upper bound of the inputs of one output of `span`.
  static std::uint64_t TapsMax(const AxisSpan& span, unsigned halvings);

 private:
  // Upper bound of the stored pixels that contribute to one output of `span`.
  static std::uint64_t PixelsMax(const AxisSpan& span);

  // The pixels [low, high) of a span that contribute to one output, weighted by a hat function
  // around `middle`.
  struct Hat {
    double middle = 0;
    double stretch = 1;  // half of its width
    std::uint32_t low = 0;
    std::uint32_t high = 0;
  };

  // Writes the weights of the inputs under `hat`, for a span that begins at `begin`; returns their
  // number.
  std::uint32_t StoreWeights(const Hat& hat, std::uint32_t begin, unsigned halvings,
                             std::int32_t* weights);

  bool identity_ = false;
  std::uint32_t input_begin_ = 0;
  std::uint32_t input_end_ = 0;
  std::uint32_t taps_max_ = 0;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> count_;
  std::vector<std::int32_t, ScratchAllocator<std::int32_t>> weights_;  // taps_max_ an output
  std::vector<double> real_weights_;  // of the stored pixels of one output, in Prepare()
};

// Reusable memory that grows; its content does not survive the next Reserve(). Not thread-safe.
class ScratchBuffer {
 public:
  std::uint8_t* Reserve(std::size_t bytes);
  void Release();
  [[nodiscard]] std::uint8_t* data() { return memory_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::uint8_t, FreesScratch> memory_;
  std::size_t size_ = 0;
};

// How an output row holds its samples.
struct RowLayout {
  bool channels_first = false;  // all of the first channel, then of the second, ...; else by pixel
  bool flip = false;            // left and right change places
};

// Where a row of `pixels` in `layout` holds the samples of a row that is not flipped.
SamplePlaces PlacesOf(RowLayout layout, std::uint32_t pixels);

// Resamples an image row by row: takes input rows from the top, returns output rows as they are
// complete. Holds only the rows that outputs still need, never an image. Input rows are of pixels
// of three bytes.
//
// Thread safety: thread-compatible: const calls may be concurrent.
class Resampler {
 public:
  static constexpr std::uint32_t kRowsAtOnce = kColumnRows;

  // The order of the passes changes the last bit, as 8 bits are kept between them.
  enum class Order : std::uint8_t { kColumnsFirst, kRowsFirst };

  // Pillow 13's order for a resize of these axes; earlier versions always used kColumnsFirst.
  static Order OrderOf(const AxisSpan& x, const AxisSpan& y);

  // `kernels` outlive it.
  explicit Resampler(const RowKernels& kernels = SupportedRowKernels().front())
      : kernels_(&kernels) {}

  // Begins an image. Its rows arrive as `row_pixels` pixels, of which those of `horizontal` begin
  // at `lead`. Both filters must outlive it. Reuses the memory of an earlier image.
  struct Input {
    std::uint32_t row_pixels = 0;
    std::uint32_t lead = 0;
  };
  void Begin(const AxisFilter& horizontal, const AxisFilter& vertical, Order order, Input input,
             RowLayout layout);

  // The buffer for input row `row` of the next Push(), in [0, kRowsAtOnce). Valid until that
  // Push().
  [[nodiscard]] std::uint8_t* input(std::uint32_t row);

  // Takes the `count` rows in input(): kRowsAtOnce, or fewer at the end of the image. Next() must
  // have returned null.
  void Push(std::uint32_t count);

  // The next output row, vertical.outputs() in all, of horizontal.outputs() pixels in the layout;
  // null if it needs more input rows. Valid until the next call.
  const std::uint8_t* Next();

  [[nodiscard]] std::size_t memory_bytes() const;
  // Upper bound of memory_bytes() for rows of `row_pixels` pixels, known before Begin().
  static std::uint64_t MemoryBytes(const Framing& framing, std::uint32_t row_pixels);

 private:
  // libjpeg-turbo's vector code writes rows that are aligned past the caches, and the resampler
  // would wait for memory when it reads them: no input row is aligned to 16 bytes.
  static constexpr std::size_t kOffAlignment = 8;

  [[nodiscard]] std::uint8_t* ring_row(std::uint32_t row) {
    return ring_.data() + kOffAlignment + (row % ring_rows_) * ring_row_bytes_;
  }
  [[nodiscard]] std::uint8_t* group_row(std::uint32_t row) {
    return group_.data() + kOffAlignment + row * group_row_bytes_;
  }

  // The vertical pass of the next output into `out`, of `bytes` after the first `lead_bytes` of its
  // inputs; returns false if rows are missing.
  bool CombineNext(std::size_t lead_bytes, std::size_t bytes, std::uint8_t* out);

  // The horizontal pass of kRowsAtOnce rows.
  void CombineGroup(const std::uint8_t* const* in, std::uint8_t* const* out);

  const RowKernels* kernels_;
  const AxisFilter* horizontal_ = nullptr;
  const AxisFilter* vertical_ = nullptr;
  Order order_ = Order::kColumnsFirst;
  SamplePlaces places_;  // in an output row
  std::size_t lead_bytes_ = 0;
  std::uint32_t pushed_ = 0;     // input rows
  std::uint32_t combined_ = 0;   // output rows through the vertical pass
  std::uint32_t collected_ = 0;  // of those, in group_, before the horizontal pass
  std::uint32_t ready_ = 0;      // rows in output_
  std::uint32_t given_ = 0;      // of those, returned by Next()

  std::uint32_t ring_rows_ = 0;  // most rows that wait for outputs
  std::size_t ring_row_bytes_ = 0;
  std::size_t group_row_bytes_ = 0;
  std::size_t output_row_bytes_ = 0;

  ScratchBuffer ring_;            // rows waiting for the vertical pass; narrow if columns are first
  ScratchBuffer group_;           // rows for one horizontal pass
  ScratchBuffer columns_;         // the same by columns
  ScratchBuffer output_columns_;  // after the horizontal pass
  ScratchBuffer output_;          // rows after both passes
  std::vector<const std::uint8_t*> taps_;  // the ring rows of one output
};

}  // namespace headrace
