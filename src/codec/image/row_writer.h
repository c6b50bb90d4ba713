#pragma once

// The last step: writes pixels of a row of the image into the row of the batch, in its layout.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/image/image_codec.h"

namespace headrace {

// The value of each byte of each channel: (value / 255 - mean) / std, in float32 operations in this
// order, as in torchvision's ToTensor and Normalize.
using NormalizeTable = std::array<std::array<float, 256>, 3>;

NormalizeTable MakeNormalizeTable(const std::array<float, 3>& mean,
                                  const std::array<float, 3>& std);

// Writes the rows of one image.
//
// Thread safety: thread-compatible: const calls may be concurrent.
// Ownership: owns nothing; transform, table and destination must outlive it.
class RowWriter {
 public:
  // `destination` has 3 * height * width elements.
  RowWriter(const ImageTransform& transform, const NormalizeTable& table, bool flip,
            std::span<std::byte> destination);

  // Where a decoder may write row `y` itself, three bytes a pixel; null if it has to be converted.
  [[nodiscard]] std::uint8_t* InPlace(std::uint32_t y) const;

  // Writes row `y` from transform.width `pixels` of `pixel_bytes` (3 or 4) each.
  void Write(std::uint32_t y, const std::uint8_t* pixels, std::size_t pixel_bytes) const;

 private:
  const ImageTransform& transform_;
  const NormalizeTable& table_;
  bool flip_;
  std::byte* destination_;
};

}  // namespace headrace
