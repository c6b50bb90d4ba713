#include "codec/image/webp_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <webp/decode.h>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "codec/image/resample.h"

namespace headrace {
namespace {

constexpr std::size_t kChunkHeaderBytes = 8;  // name and length
constexpr std::size_t kFileHeaderBytes = 12;  // "RIFF", the length of the rest, "WEBP"

// A crop begins and ends this far outside the region, at an even pixel: colours are interpolated
// between neighbours, and the border of a crop is treated as that of the image.
constexpr std::uint32_t kWebpMarginPixels = 2;

std::uint64_t LittleEndian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[i - 1]);
  }
  return value;
}

// The parts of a WebP file that a decoder needs.
struct Container {
  std::span<const std::byte> image;  // its chunk, with the header; empty: there is none
  std::optional<ImageSize> canvas;
  bool is_animation = false;
};

// Other chunks are not read: pixels do not depend on profiles and EXIF, and alpha is dropped.
Result<Container> ReadContainer(std::span<const std::byte> encoded) {
  const std::uint64_t file_bytes = 8 + LittleEndian(encoded.subspan(4, 4));
  if (file_bytes > encoded.size() || file_bytes < kFileHeaderBytes) {
    return DataLoss("decoding WebP image: truncated: {} of {}", encoded.size(),
                    Counted(file_bytes, "byte"));
  }
  const std::span<const std::byte> file = encoded.first(file_bytes);
  Container found;
  for (std::size_t at = kFileHeaderBytes; file.size() - at >= kChunkHeaderBytes;) {
    const std::string_view name(reinterpret_cast<const char*>(file.data()) + at, 4);
    const std::uint64_t bytes = LittleEndian(file.subspan(at + 4, 4));
    const std::uint64_t rest = file.size() - at - kChunkHeaderBytes;
    if (bytes > rest) {
      return DataLoss("decoding WebP image: byte {}: a chunk of {}, of which {} are there", at,
                      Counted(bytes, "byte"), rest);
    }
    const std::span<const std::byte> body = file.subspan(at + kChunkHeaderBytes, bytes);
    if (name == "VP8X" && body.size() >= 10) {
      constexpr std::byte kAnimation{2};
      found.is_animation = (body[0] & kAnimation) != std::byte{0};
      found.canvas = {.width = 1 + static_cast<std::uint32_t>(LittleEndian(body.subspan(4, 3))),
                      .height = 1 + static_cast<std::uint32_t>(LittleEndian(body.subspan(7, 3)))};
    } else if (name == "VP8 " || name == "VP8L") {
      found.image = file.subspan(at, kChunkHeaderBytes + bytes);
      break;
    }
    const std::uint64_t padded = bytes + (bytes & 1);
    if (padded > rest) break;
    at += kChunkHeaderBytes + padded;
  }
  return found;
}

const char* TextOf(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "of a kind that libwebp does not decode";
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "truncated";
    default:
      return "damaged";
  }
}

class WebpDecoder final : public ImageDecoder {
 public:
  Status Open(std::span<const std::byte> encoded, std::uint64_t pixels_max);

  [[nodiscard]] std::uint64_t ScratchBytes(unsigned halvings) const override;
  Status Start(const ImageRegion& region) override;
  Status ReadRow(std::uint8_t* row) override;
  // Its container has told that nothing is missing.
  Status Finish(std::uint8_t* /*row*/) override { return {}; }

 private:
  Status Check(VP8StatusCode status) const;

  std::span<const std::byte> image_;  // its chunk
  bool lossless_ = false;
  ScratchBuffer pixels_;  // of the region and its margin
  std::size_t next_row_ = 0;
};

Status WebpDecoder::Check(VP8StatusCode status) const {
  if (status == VP8_STATUS_OK) return {};
  std::string message = "decoding WebP image";
  if (size_.width > 0) message += fmt::format(" of {} x {} pixels", size_.width, size_.height);
  const bool memory = status == VP8_STATUS_OUT_OF_MEMORY;
  return Status(memory ? StatusCode::kInvalidArgument : StatusCode::kDataLoss,
                message + ": " + TextOf(status));
}

Status WebpDecoder::Open(std::span<const std::byte> encoded, std::uint64_t pixels_max) {
  HEADRACE_ASSIGN_OR_RETURN(const Container found, ReadContainer(encoded));
  if (found.is_animation) {
    return DataLoss(
        "decoding WebP image: an animation, which is not decoded; save its first frame as an "
        "image, "
        "or leave it to Pillow and a Python transform");
  }
  if (found.image.empty()) return DataLoss("decoding WebP image: it has no image data");
  image_ = found.image;
  WebPBitstreamFeatures features{};
  HEADRACE_RETURN_IF_ERROR(Check(WebPGetFeatures(
      reinterpret_cast<const std::uint8_t*>(image_.data()), image_.size(), &features)));
  size_ = {static_cast<std::uint32_t>(features.width), static_cast<std::uint32_t>(features.height)};
  const ImageSize canvas = found.canvas.value_or(size_);
  if (canvas.width != size_.width || canvas.height != size_.height) {
    return Check(VP8_STATUS_BITSTREAM_ERROR);
  }
  constexpr int kLossless = 2;
  lossless_ = features.format == kLossless;
  return CheckPixels(size_, pixels_max);
}

// libwebp's own memory is an estimate: it has no function that tells it. A lossy image is decoded
// by rows of blocks. A lossless one is whole in memory, beside images of its transforms, each of at
// most a sixteenth of its pixels, and tables of codes: more than kTablesBytes only in files that
// libwebp's encoder does not write.
std::uint64_t WebpDecoder::ScratchBytes(unsigned /*halvings*/) const {
  constexpr std::uint64_t kWebpStateBytes = std::uint64_t{64} << 10;
  constexpr std::uint64_t kTablesBytes = std::uint64_t{1} << 20;
  constexpr std::uint64_t kBlockColumnBytes = 2560;  // for 16 pixels of width
  const std::uint64_t width = size_.width;
  const std::uint64_t pixels = width * size_.height;
  const std::uint64_t decoded = kPixelBytes * pixels + kWebpStateBytes;
  if (!lossless_) return decoded + kBlockColumnBytes * ((width + 15) / 16);
  return decoded + 4 * pixels + 3 * (pixels / 4) + 72 * width + kTablesBytes;
}

Status WebpDecoder::Start(const ImageRegion& region) {
  HEADRACE_CHECK(region.halvings == 0 && region.width > 0 && region.height > 0);
  HEADRACE_CHECK(region.x + region.width <= size_.width &&
                 region.y + region.height <= size_.height);
  const auto begin = [](std::uint32_t at) { return (at - std::min(at, kWebpMarginPixels)) & ~1U; };
  const auto end = [](std::uint32_t at, std::uint32_t size) {
    return std::min(size, at + kWebpMarginPixels);
  };
  const std::uint32_t left = begin(region.x);
  const std::uint32_t top = begin(region.y);
  row_pixels_ = end(region.x + region.width, size_.width) - left;
  row_lead_ = region.x - left;
  next_row_ = region.y - top;
  const std::size_t rows = end(region.y + region.height, size_.height) - top;

  WebPDecoderConfig config{};
  HEADRACE_CHECK(WebPInitDecoderConfig(&config) != 0);
  config.options.use_cropping = 1;
  config.options.crop_left = static_cast<int>(left);
  config.options.crop_top = static_cast<int>(top);
  config.options.crop_width = static_cast<int>(row_pixels_);
  config.options.crop_height = static_cast<int>(rows);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  WebPRGBABuffer& out = config.output.u.RGBA;
  out.stride = static_cast<int>(kPixelBytes * row_pixels_);
  out.size = kPixelBytes * row_pixels_ * rows;
  out.rgba = pixels_.Reserve(out.size);
  return Check(
      WebPDecode(reinterpret_cast<const std::uint8_t*>(image_.data()), image_.size(), &config));
}

Status WebpDecoder::ReadRow(std::uint8_t* row) {
  const std::size_t row_bytes = kPixelBytes * row_pixels_;
  std::copy_n(pixels_.data() + row_bytes * next_row_++, row_bytes, row);
  return {};
}

}  // namespace

Result<std::unique_ptr<ImageDecoder>> OpenWebp(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max) {
  auto decoder = std::make_unique<WebpDecoder>();
  HEADRACE_RETURN_IF_ERROR(decoder->Open(encoded, pixels_max));
  return std::unique_ptr<ImageDecoder>(std::move(decoder));
}

bool IsRefusedWebp(std::span<const std::byte> encoded) {
  const Result<Container> found = ReadContainer(encoded);
  return found.ok() && found.value().is_animation;
}

}  // namespace headrace
