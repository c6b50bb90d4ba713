#pragma once

// The common interface of JPEG and PNG: a header that gives the size, then rows of a region.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "codec/image/geometry.h"

namespace headrace {

// Bytes of a pixel: red, green, blue, and in kRgbx a fourth without meaning.
enum class PixelLayout : std::uint8_t { kRgb = 3, kRgbx = 4 };

constexpr std::size_t PixelBytes(PixelLayout layout) { return static_cast<std::size_t>(layout); }

// The part of an image to decode, in pixels after `halvings`.
struct ImageRegion {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  unsigned halvings = 0;  // at most ImageDecoder::scaling().halvings_max
};

// Decodes one image, once: Start(), then ReadRow() for each row of the region, then Finish(). After
// an error only the destructor may follow.
//
// Thread safety: as for an int.
// Ownership: the caller owns the encoded bytes, which must outlive it.
// Errors, of every method: DataLoss  damaged, truncated or of an unsupported kind
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;

  [[nodiscard]] ImageSize size() const { return size_; }

  // How far the decoder can scale the image, at no cost.
  [[nodiscard]] virtual DecoderScaling scaling() const { return {}; }

  // Upper bound of the bytes that Start() and later calls allocate, from the header alone.
  // `halvings` as in Start().
  [[nodiscard]] virtual std::uint64_t ScratchBytes(unsigned halvings) const = 0;

  // `region` must lie in the image and hold a pixel.
  virtual Status Start(const ImageRegion& region, PixelLayout layout) = 0;

  // After Start(): ReadRow() returns row_pixels() pixels; the first pixel of the region is at
  // row_lead(), because decoders read more than the region.
  [[nodiscard]] std::uint32_t row_pixels() const { return row_pixels_; }
  [[nodiscard]] std::uint32_t row_lead() const { return row_lead_; }

  // Fills `row`, of row_pixels() pixels, with the next row of the region.
  virtual Status ReadRow(std::uint8_t* row) = 0;

  // Checks whether an image that looks incomplete is complete, using `row` as memory.
  virtual Status Finish(std::uint8_t* row) = 0;

 protected:
  ImageDecoder() = default;

  ImageSize size_;
  std::uint32_t row_pixels_ = 0;
  std::uint32_t row_lead_ = 0;
};

// The longest side of an image, that of JPEG: a few pixels in one row can need much memory.
inline constexpr std::uint32_t kImageSideMax = 65500;

// Reads the header of `encoded`. The first bytes decide the format, not the file's name.
//
// Errors: DataLoss         neither JPEG nor PNG, or its header is damaged or not supported
//         InvalidArgument  more than `pixels_max` pixels, a side above kImageSideMax
Result<std::unique_ptr<ImageDecoder>> OpenImage(std::span<const std::byte> encoded,
                                                std::uint64_t pixels_max);

// InvalidArgument if an image of `size` has more than `pixels_max` pixels, or too long a side.
Status CheckPixels(ImageSize size, std::uint64_t pixels_max);

// Upper bound of the bytes that decoding an image of up to `pixels_max` pixels allocates: a whole
// image of four components of two bytes, and a few rows.
std::uint64_t ImageScratchBytesMax(std::uint64_t pixels_max);

// The ResourceExhausted error of an image of `size` whose decode needs `bytes`, above its limit.
Status TakesTooMuch(ImageSize size, std::uint64_t bytes);

}  // namespace headrace
