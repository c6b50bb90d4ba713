// As image_codec_fuzz.cc, but an input is a list of changes of a valid WebP or TIFF, so that the
// decoders behind headers are reached.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "codec/image/image_codec.h"
#include "codec/image/test_images.h"

namespace headrace {
namespace {

using Encoded = std::vector<std::byte>;

std::vector<Encoded> Images() {
  const test::RgbImage image = test::MakeTexture(40, 30);
  std::vector<Encoded> images = {test::EncodeWebp(image), test::EncodeWebp(image, {.alpha = true}),
                                 test::EncodeWebp(image, {.lossless = true, .alpha = true}),
                                 test::EncodeWebpAnimation(image)};
  for (const char* mode : {"wl", "wb", "wl8"}) {
    images.push_back(test::EncodeTiff(image, {.mode = mode}));
    images.push_back(test::EncodeTiff(image, {.mode = mode, .bits = 16, .planes = true}));
    images.push_back(test::EncodeTiff(image, {.mode = mode, .photometric = 3, .samples = 1}));
    for (const unsigned compression : {5U, 8U, 32773U}) {
      images.push_back(test::EncodeTiff(image, {.mode = mode, .compression = compression}));
      images.push_back(test::EncodeTiff(image, {.mode = mode,
                                                .samples = 4,
                                                .compression = compression,
                                                .tile_width = 16,
                                                .tile_height = 16}));
    }
    for (const unsigned compression : {2U, 3U, 4U}) {
      images.push_back(test::EncodeTiff(
          image,
          {.mode = mode, .photometric = 0, .samples = 1, .bits = 1, .compression = compression}));
    }
  }
  return images;
}

// The first byte chooses a file; each three more change a byte of it.
Encoded Changed(const std::vector<Encoded>& files, std::span<const std::uint8_t> input) {
  Encoded encoded = files[input.empty() ? 0 : input[0] % files.size()];
  for (std::size_t i = 1; i + 2 < input.size(); i += 3) {
    const std::size_t at = input[i] | std::size_t{input[i + 1]} << 8;
    encoded[at % encoded.size()] = static_cast<std::byte>(input[i + 2]);
  }
  return encoded;
}

std::unique_ptr<FieldCodec> Codec() {
  ImageTransform crop;
  crop.random_resized_crop.emplace();
  crop.height = 20;
  crop.width = 31;
  crop.pixels_max = 1 << 16;
  return MakeImageCodec(crop).value();
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto* files = new std::vector<headrace::Encoded>(headrace::Images());
  static const auto* codec = headrace::Codec().release();
  const headrace::Encoded encoded = headrace::Changed(*files, {data, size});
  std::array<headrace::Encoded, 2> rows;
  std::array<headrace::Status, 2> statuses;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(codec->RowBytes(encoded.size()));
    statuses[i] = codec->Decode(encoded, {.seed = size}, rows[i]);
    const headrace::StatusCode code = statuses[i].code();
    HEADRACE_CHECK(code == headrace::StatusCode::kOk || code == headrace::StatusCode::kDataLoss ||
                   code == headrace::StatusCode::kInvalidArgument);
  }
  HEADRACE_CHECK(statuses[0].code() == statuses[1].code());
  HEADRACE_CHECK(!statuses[0].ok() || rows[0] == rows[1]);
  return 0;
}
