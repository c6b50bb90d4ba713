#pragma once

// The common interface of the decoders of image formats: opening reads the header, which gives the
// size; then the rows of a region are decoded.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/geometry.h"
#include "headrace/status.h"

namespace headrace {

inline constexpr std::size_t kPixelBytes = 3;  // of a decoded pixel: red, green, blue

// The part of an image to decode, in pixels of the image after it was scaled down by 2^halvings.
struct ImageRegion {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  unsigned halvings = 0;  // at most ImageDecoder::scaling().halvings_max
};

// Decodes one image, once. Call Start(), then ReadRow() for each row of the region, then Finish().
// After an error, call only the destructor.
//
// Thread safety: thread-compatible: const calls may be concurrent.
// Ownership: the caller owns the encoded bytes, which must outlive it.
// Errors, of every method: DataLoss  damaged, truncated or of an unsupported kind
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;

  [[nodiscard]] ImageSize size() const { return size_; }

  // How far the decoder can scale the image down while it decodes, at no extra cost.
  [[nodiscard]] virtual DecoderScaling scaling() const { return {}; }

  // Upper bound of the bytes that Start() and later calls allocate, computed from the header alone.
  // `halvings` is that of the region passed to Start().
  [[nodiscard]] virtual std::uint64_t ScratchBytes(unsigned halvings) const = 0;

  // `region` must lie inside the image and contain at least one pixel.
  virtual Status Start(const ImageRegion& region) = 0;

  // Valid after Start(). A row that ReadRow() fills has row_pixels() pixels, of which row_lead()
  // come before the region: a decoder may have to decode more than the region.
  [[nodiscard]] std::uint32_t row_pixels() const { return row_pixels_; }
  [[nodiscard]] std::uint32_t row_lead() const { return row_lead_; }

  // Fills `row`, of row_pixels() pixels, with the next row of the region.
  virtual Status ReadRow(std::uint8_t* row) = 0;

  // If the encoded bytes look truncated, decodes all remaining rows into `row`, of row_pixels()
  // pixels: a truncated image is then an error.
  virtual Status Finish(std::uint8_t* row) = 0;

 protected:
  ImageDecoder() = default;

  ImageSize size_;
  std::uint32_t row_pixels_ = 0;
  std::uint32_t row_lead_ = 0;
};

// The largest width or height of an image, in pixels: the limit of JPEG. `pixels_max` alone would
// permit few but very long rows, which need much memory.
inline constexpr std::uint32_t kImageSideMax = 65500;

// Reads the header of `encoded`. The first bytes decide the format, not the file's name.
//
// Errors: DataLoss           of no format that is decoded, or its header is damaged or unsupported
//         InvalidArgument    more than `pixels_max` pixels, a side above kImageSideMax
//         ResourceExhausted  the system has no memory for a decoder
Result<std::unique_ptr<ImageDecoder>> OpenImage(std::span<const std::byte> encoded,
                                                std::uint64_t pixels_max);

// Whether `encoded` is of a format that is decoded, but of a kind that OpenImage() refuses, such as
// an animation. Other programs may decode it.
bool IsRefusedImage(std::span<const std::byte> encoded);

// Up to `threads` threads decode without reading the environment after this call, whatever others
// do to it, such as Python's os.environ (jpeg_decompressor.h). No other thread may change it during
// the call.
//
// Thread safety: any thread may call it.
// Errors: ResourceExhausted  no memory
Status PrepareImageDecoders(std::size_t threads);

// Whether this build decodes TIFF: HEADRACE_TIFF of CMake.
bool DecodesTiff();

// InvalidArgument if an image of `size` has more than `pixels_max` pixels, or too long a side.
Status CheckPixels(ImageSize size, std::uint64_t pixels_max);

// Upper bound of the bytes that decoding an image of up to `pixels_max` pixels allocates: a whole
// image with four components of two bytes each, and a few rows.
std::uint64_t ImageScratchBytesMax(std::uint64_t pixels_max);

// The ResourceExhausted error for an image of `size` whose decode needs `bytes`, above its limit.
Status TakesTooMuch(ImageSize size, std::uint64_t bytes);

}  // namespace headrace
