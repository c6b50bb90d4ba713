#pragma once

// The last step: writes the rows of an image into the row of the batch, in its layout and type.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/image/image_codec.h"
#include "codec/image/resample.h"
#include "codec/image/row_kernels.h"

namespace headrace {

// Makes floats of samples: (sample / 255 - mean) / std, in float32 operations in this order, as in
// torchvision's ToTensor and Normalize.
//
// Thread safety: thread-compatible: const calls may be concurrent.
class Normalizer {
 public:
  // `kernels` are preferred, and used if their results equal the definition bit for bit.
  Normalizer(const std::array<float, 3>& mean, const std::array<float, 3>& std,
             const RowKernels& kernels = SupportedRowKernels().front());

  // The float of each value of a sample.
  [[nodiscard]] const std::array<float, 256>& values(unsigned channel) const {
    return channels_[channel].of;
  }

  void Convert(unsigned channel, const std::uint8_t* samples, std::size_t count, float* to) const {
    to_floats_(samples, count, channels_[channel], to);
  }

 private:
  std::array<ChannelValues, 3> channels_;
  decltype(RowKernels::to_floats) to_floats_;
};

// Writes the rows of one image.
//
// Thread safety: thread-compatible: const calls may be concurrent.
// Ownership: owns nothing; transform, normalizer and destination must outlive it.
class RowWriter {
 public:
  // `destination` has 3 * height * width elements.
  RowWriter(const ImageTransform& transform, const Normalizer& normalizer, bool flip,
            std::span<std::byte> destination);

  // Where a decoder may write row `y` itself, three bytes a pixel; null if it has to be converted.
  [[nodiscard]] std::uint8_t* InPlace(std::uint32_t y) const;

  // The layout of the rows that Write() takes, of transform.width pixels.
  [[nodiscard]] RowLayout layout() const {
    return {.channels_first = transform_.channels_first, .flip = flip_};
  }

  // Writes row `y`.
  void Write(std::uint32_t y, const std::uint8_t* row) const;

 private:
  const ImageTransform& transform_;
  const Normalizer& normalizer_;
  bool flip_;
  std::byte* destination_;
};

}  // namespace headrace
