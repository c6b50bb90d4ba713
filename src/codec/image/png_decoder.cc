#include "codec/image/png_decoder.h"

#include <cstring>
#include <string>
#include <utility>

#include <spng.h>

#include "base/check.h"
#include "codec/image/resample.h"

namespace headrace {
namespace {

// Of one ancillary chunk, and of all together: profiles and texts are read and thrown away.
constexpr std::size_t kChunkBytesMax = std::size_t{16} << 20;

// The chunk that ends a file: its length, its name, its checksum.
constexpr unsigned char kEndChunk[12] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xAE, 0x42, 0x60, 0x82};

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

class PngDecoder final : public ImageDecoder {
 public:
  Status Open(std::span<const std::byte> encoded, std::uint64_t pixels_max);

  Status Start(const ImageRegion& region, PixelLayout layout) override;
  Status ReadRow(std::uint8_t* row) override;
  Status Finish(std::uint8_t* row) override;

 private:
  Status Check(int error) const;
  Status ReadOne(std::uint8_t* row);
  [[nodiscard]] std::size_t row_bytes() const { return PixelBytes(layout_) * size_.width; }

  std::unique_ptr<spng_ctx, FreeContext> context_;
  bool complete_ = false;  // has its end chunk
  bool interlaced_ = false;
  PixelLayout layout_ = PixelLayout::kRgb;
  std::uint32_t next_row_ = 0;
  std::uint32_t region_y_ = 0;
  ScratchBuffer whole_;  // the image, if interlaced
};

Status PngDecoder::Check(int error) const {
  if (error == 0) return {};
  std::string message = "decoding PNG image";
  if (size_.width > 0) {
    message +=
        " of " + std::to_string(size_.width) + " x " + std::to_string(size_.height) + " pixels";
  }
  return Status(StatusCode::kDataLoss, message + ": " + spng_strerror(error));
}

Status PngDecoder::Open(std::span<const std::byte> encoded, std::uint64_t pixels_max) {
  context_.reset(spng_ctx_new(0));
  if (context_ == nullptr) return Check(SPNG_EMEM);
  HEADRACE_RETURN_IF_ERROR(
      Check(spng_set_chunk_limits(context_.get(), kChunkBytesMax, kChunkBytesMax)));
  HEADRACE_RETURN_IF_ERROR(
      Check(spng_set_png_buffer(context_.get(), encoded.data(), encoded.size())));
  spng_ihdr header{};
  HEADRACE_RETURN_IF_ERROR(Check(spng_get_ihdr(context_.get(), &header)));
  size_ = {header.width, header.height};
  HEADRACE_RETURN_IF_ERROR(CheckPixels(size_, pixels_max));
  interlaced_ = header.interlace_method != 0;
  complete_ = encoded.size() >= sizeof(kEndChunk) &&
              std::memcmp(encoded.data() + encoded.size() - sizeof(kEndChunk), kEndChunk,
                          sizeof(kEndChunk)) == 0;
  return {};
}

Status PngDecoder::Start(const ImageRegion& region, PixelLayout layout) {
  HEADRACE_CHECK(region.halvings == 0 && region.width > 0 && region.height > 0);
  HEADRACE_CHECK(region.x + region.width <= size_.width &&
                 region.y + region.height <= size_.height);
  layout_ = layout;
  region_y_ = region.y;
  row_lead_ = region.x;
  row_pixels_ = size_.width;
  const int format = layout == PixelLayout::kRgbx ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8;
  if (interlaced_) {
    const std::size_t bytes = row_bytes() * size_.height;
    next_row_ = region.y;
    return Check(spng_decode_image(context_.get(), whole_.Reserve(bytes), bytes, format, 0));
  }
  return Check(spng_decode_image(context_.get(), nullptr, 0, format, SPNG_DECODE_PROGRESSIVE));
}

Status PngDecoder::ReadOne(std::uint8_t* row) {
  const int error = spng_decode_row(context_.get(), row, row_bytes());
  ++next_row_;
  return error == SPNG_EOI ? Status() : Check(error);  // SPNG_EOI comes with the last row
}

Status PngDecoder::ReadRow(std::uint8_t* row) {
  if (interlaced_) {
    std::memcpy(row, whole_.data() + row_bytes() * next_row_++, row_bytes());
    return {};
  }
  while (next_row_ < region_y_) HEADRACE_RETURN_IF_ERROR(ReadOne(row));
  return ReadOne(row);
}

Status PngDecoder::Finish(std::uint8_t* row) {
  if (complete_ || interlaced_) return {};
  while (next_row_ < size_.height) HEADRACE_RETURN_IF_ERROR(ReadOne(row));
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageDecoder>> OpenPng(std::span<const std::byte> encoded,
                                              std::uint64_t pixels_max) {
  auto decoder = std::make_unique<PngDecoder>();
  HEADRACE_RETURN_IF_ERROR(decoder->Open(encoded, pixels_max));
  return std::unique_ptr<ImageDecoder>(std::move(decoder));
}

}  // namespace headrace
