#include "codec/image/png_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <spng.h>

#include "base/check.h"
#include "base/format/errors.h"
#include "codec/image/png_stream.h"
#include "codec/image/resample.h"
#include "codec/scratch_memory.h"

namespace headrace {
namespace {

// State of a decoder, its input buffer and its inflater: they do not grow with the image.
constexpr std::uint64_t kPngStateBytes = std::uint64_t{88} << 10;

// The largest decoded chunk besides the image data is a palette, with 768 bytes.
constexpr std::size_t kChunkBytesMax = 4096;

void* AllocateZeroed(std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
  void* memory = AllocateScratch(bytes);
  if (memory != nullptr) std::memset(memory, 0, bytes);
  return memory;
}

void* Reallocate(void* memory, std::size_t bytes) {
  void* grown = AllocateScratch(bytes);
  if (grown == nullptr || memory == nullptr) return grown;
  std::memcpy(grown, memory, std::min(bytes, ScratchBlockBytes(memory)));
  FreeScratch(memory);
  return grown;
}

int ReadStream(spng_ctx* /*context*/, void* stream, void* dst, std::size_t bytes) {
  const std::span<std::byte> out(static_cast<std::byte*>(dst), bytes);
  return static_cast<PngStream*>(stream)->Read(out) ? 0 : SPNG_IO_EOF;
}

// The size in the header chunk, which must come first; otherwise 0 x 0, which spng refuses.
ImageSize SizeInHeader(std::span<const std::byte> encoded) {
  constexpr std::size_t kName = 12;  // After the magic bytes and the chunk's length.
  if (encoded.size() < kName + 12 || std::memcmp(encoded.data() + kName, "IHDR", 4) != 0) return {};
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      value = value << 8 | std::to_integer<std::uint32_t>(encoded[at + i]);
    }
    return value;
  };
  return {.width = number(kName + 4), .height = number(kName + 8)};
}

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

class PngDecoder final : public ImageDecoder {
 public:
  Status Open(std::span<const std::byte> encoded, std::uint64_t pixels_max);

  [[nodiscard]] std::uint64_t ScratchBytes(unsigned halvings) const override;
  Status Start(const ImageRegion& region) override;
  Status ReadRow(std::uint8_t* row) override;
  Status Finish(std::uint8_t* row) override;

 private:
  Status Check(int error) const;
  Status ReadOne(std::uint8_t* row);
  [[nodiscard]] std::size_t row_bytes() const { return kPixelBytes * size_.width; }

  PngStream stream_;
  std::unique_ptr<spng_ctx, FreeContext> context_;  // reads stream_
  bool interlaced_ = false;
  std::uint32_t next_row_ = 0;
  std::uint32_t region_y_ = 0;
  std::uint64_t pixel_bits_ = 0;  // as stored
  ScratchBuffer whole_;           // the image, if interlaced
};

Status PngDecoder::Check(int error) const {
  if (error == 0) return {};
  std::string message = "decoding PNG image";
  if (size_.width > 0 || size_.height > 0) {
    message += fmt::format(" of {} x {} pixels", size_.width, size_.height);
  }
  return Status(StatusCode::kDataLoss, message + ": " + spng_strerror(error));
}

Status PngDecoder::Open(std::span<const std::byte> encoded, std::uint64_t pixels_max) {
  spng_alloc allocator{.malloc_fn = AllocateScratch,
                       .realloc_fn = Reallocate,
                       .calloc_fn = AllocateZeroed,
                       .free_fn = FreeScratch};
  context_.reset(spng_ctx_new2(&allocator, 0));
  if (context_ == nullptr) {
    return ResourceExhausted("making a PNG decoder: the system has no memory");
  }
  HEADRACE_RETURN_IF_ERROR(
      Check(spng_set_chunk_limits(context_.get(), kChunkBytesMax, kChunkBytesMax)));
  stream_ = PngStream(encoded);
  HEADRACE_RETURN_IF_ERROR(Check(spng_set_png_stream(context_.get(), ReadStream, &stream_)));
  size_ = SizeInHeader(encoded);
  spng_ihdr header{};
  const int read = spng_get_ihdr(context_.get(), &header);
  // spng refuses rows of almost 2^31 - 1 pixels without a message: this error contains the size.
  if (read == SPNG_EOVERFLOW) HEADRACE_RETURN_IF_ERROR(CheckPixels(size_, pixels_max));
  HEADRACE_RETURN_IF_ERROR(Check(read));
  size_ = {header.width, header.height};
  HEADRACE_RETURN_IF_ERROR(CheckPixels(size_, pixels_max));
  interlaced_ = header.interlace_method != 0;
  const bool alpha = (header.color_type & 4) != 0;
  const bool colour = (header.color_type & 3) == 2;
  pixel_bits_ = header.bit_depth * ((colour ? std::uint64_t{3} : 1) + (alpha ? 1 : 0));
  return {};
}

// Two rows as stored. For an interlaced image also one decoded row, and the whole image.
std::uint64_t PngDecoder::ScratchBytes(unsigned /*halvings*/) const {
  constexpr std::uint64_t kMargin = 256;
  const std::uint64_t stored_row = (size_.width * pixel_bits_ + 7) / 8 + kMargin;
  const std::uint64_t row = kPixelBytes * size_.width;
  const std::uint64_t whole = interlaced_ ? row * (std::uint64_t{size_.height} + 1) + kMargin : 0;
  return kPngStateBytes + 2 * stored_row + whole;
}

Status PngDecoder::Start(const ImageRegion& region) {
  HEADRACE_CHECK(region.halvings == 0 && region.width > 0 && region.height > 0);
  HEADRACE_CHECK(region.x + region.width <= size_.width &&
                 region.y + region.height <= size_.height);
  region_y_ = region.y;
  row_lead_ = region.x;
  row_pixels_ = size_.width;
  constexpr int kFormat = SPNG_FMT_RGB8;
  if (interlaced_) {
    const std::size_t bytes = row_bytes() * size_.height;
    next_row_ = region.y;
    return Check(spng_decode_image(context_.get(), whole_.Reserve(bytes), bytes, kFormat, 0));
  }
  return Check(spng_decode_image(context_.get(), nullptr, 0, kFormat, SPNG_DECODE_PROGRESSIVE));
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

// To the last row: the checksums of the pixels come behind it, and a wrong byte above may have made
// wrong rows that look right.
Status PngDecoder::Finish(std::uint8_t* row) {
  if (interlaced_) return {};
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
