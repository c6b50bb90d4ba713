#include "codec/image/pixel_form.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/decoded_form.h"
#include "codec/image/image_codec.h"
#include "codec/image/image_header.h"
#include "codec/image/test_images.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using test::EncodeJpeg;
using test::EncodePng;
using test::EncodeTiff;
using test::EncodeWebp;
using test::MakeTexture;

using Bytes = std::vector<std::byte>;

ImageTransform Cropped() {
  ImageTransform transform{.flip_probability = 0.5, .height = 24, .width = 32};
  transform.random_resized_crop.emplace();
  return transform;
}

// Plain and as training has them.
std::vector<ImageTransform> Transforms(ImageSize size) {
  ImageTransform floats = Cropped();
  floats.to_float = true;
  floats.mean = {0.4F, 0.5F, 0.6F};
  ImageTransform exact = Cropped();
  exact.exact = true;
  exact.channels_first = false;
  ImageTransform whole{.height = size.height, .width = size.width, .channels_first = false};
  return {Cropped(), floats, exact, whole, {.resize_shorter = 30, .height = 24, .width = 28}};
}

std::unique_ptr<FieldCodec> Codec(const ImageTransform& transform) {
  return MakeImageCodec(transform).value();
}

Bytes FormOf(const FieldCodec& codec, const Bytes& encoded, ImageSize size) {
  Bytes form(PixelFormBytes(size));
  ScratchLimit limit;
  EXPECT_EQ(codec.decoded_form()->MakeForm(encoded, form, limit).ToString(), "OK");
  return form;
}

// Fills the row with other bytes first.
Bytes RowOf(const FieldCodec& codec, const Bytes& bytes, bool is_form, std::uint64_t epoch) {
  const SampleKey key{.seed = 3, .epoch = epoch, .sample = SampleId{5}};
  Bytes row(codec.RowBytes(0), std::byte(is_form ? 1 : 2));
  ScratchLimit limit;
  const Status status = is_form ? codec.decoded_form()->DecodeForm(bytes, key, row, limit)
                                : codec.DecodeWithin(bytes, key, row, limit);
  EXPECT_EQ(status.ToString(), "OK");
  return row;
}

TEST(PixelFormTest, RowsAreThoseOfTheEncodedBytesForEveryKindOfImageAndTransform) {
  const ImageSize size{.width = 117, .height = 83};
  const auto image = MakeTexture(size.width, size.height);
  const std::vector<Bytes> kinds = {
      EncodeJpeg(image),
      EncodeJpeg(image, {.vertical_sampling = 1}),
      EncodeJpeg(image, {.horizontal_sampling = 1, .vertical_sampling = 1}),
      EncodeJpeg(image, {.horizontal_sampling = 1, .vertical_sampling = 1, .components = 1}),
      EncodeJpeg(image, {.horizontal_sampling = 1, .vertical_sampling = 1, .components = 4}),
      EncodeJpeg(image, {.progressive = true}),
      EncodeJpeg(image, {.restart_rows = 1}),
      EncodePng(image),
      EncodePng(image, {.color_type = 6}),
      EncodePng(image, {.interlaced = true}),
      EncodeWebp(image),
      EncodeWebp(image, {.lossless = true}),
      EncodeWebp(image, {.alpha = true}),
      EncodeTiff(image)};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const ImageTransform& transform : Transforms(size)) {
      const auto codec = Codec(transform);
      const Bytes form = FormOf(*codec, kinds[kind], size);
      for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
        ASSERT_EQ(RowOf(*codec, form, true, epoch), RowOf(*codec, kinds[kind], false, epoch))
            << "kind " << kind << ", epoch " << epoch;
      }
    }
  }
}

TEST(PixelFormTest, AnImageOfWhichARowMayBeScaledHasNoForm) {
  const ImageSize size{.width = 512, .height = 520};
  const Bytes encoded = EncodeJpeg(MakeTexture(size.width, size.height));
  ImageTransform transform = Cropped();
  transform.height = transform.width = 64;  // Of eight times that the decoder halves.
  Bytes form(PixelFormBytes(size));
  ScratchLimit limit;
  EXPECT_EQ(Codec(transform)->decoded_form()->MakeForm(encoded, form, limit).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(FormBytesFor(size, transform), 0U);
  transform.width = 65;
  EXPECT_EQ(FormBytesFor(size, transform), PixelFormBytes(size));
  EXPECT_TRUE(Codec(transform)->decoded_form()->MakeForm(encoded, form, limit).ok());
  transform.width = 64;
  transform.exact = true;
  EXPECT_EQ(FormBytesFor(size, transform), PixelFormBytes(size));
  EXPECT_TRUE(Codec(transform)->decoded_form()->MakeForm(encoded, form, limit).ok());
}

// The table must never promise what the codec refuses: then the plan counts on it.
TEST(PixelFormTest, TheTableIsAtLeastAsCarefulAsTheCodec) {
  for (const std::uint32_t side : {511U, 512U, 513U, 1024U, 1100U}) {
    for (const bool crops : {false, true}) {
      ImageTransform transform{.resize_shorter = crops ? 0U : 70U, .height = 64, .width = 64};
      if (crops) transform.random_resized_crop.emplace();
      for (const int sampling : {1, 2}) {
        const Bytes encoded = EncodeJpeg(MakeTexture(side, side),
                                         {.horizontal_sampling = sampling, .vertical_sampling = 1});
        const ImageSize size{.width = side, .height = side};
        if (FormBytesFor(size, transform) == 0) continue;
        Bytes form(PixelFormBytes(size));
        ScratchLimit limit;
        EXPECT_TRUE(Codec(transform)->decoded_form()->MakeForm(encoded, form, limit).ok()) << side;
      }
    }
  }
}

TEST(PixelFormTest, TooLargeAnImageStaysEncoded) {
  EXPECT_EQ(FormBytesFor({.width = 5000, .height = 5000}, {.exact = true}), 0U);
  EXPECT_EQ(FormBytesFor({.width = 70000, .height = 10}, {.exact = true}), 0U);
  EXPECT_NE(FormBytesFor({.width = 4000, .height = 5000}, {.exact = true}), 0U);
}

TEST(PixelFormTest, AFormOfAnotherSizeIsNotMadeAndMemoryIsLimited) {
  const Bytes encoded = EncodeJpeg(MakeTexture(40, 30), {.progressive = true});
  const auto codec = Codec(Cropped());
  Bytes form(PixelFormBytes({.width = 40, .height = 30}));
  ScratchLimit limit;
  EXPECT_EQ(codec->decoded_form()
                ->MakeForm(encoded, std::span(form).first(form.size() - 1), limit)
                .code(),
            StatusCode::kFailedPrecondition);
  limit.bytes_max = 100;
  EXPECT_EQ(codec->decoded_form()->MakeForm(encoded, form, limit).code(),
            StatusCode::kResourceExhausted);
  EXPECT_GT(limit.bytes_needed, 100U);
  const Bytes damaged(encoded.begin(), encoded.begin() + 300);
  limit = {};
  EXPECT_EQ(codec->decoded_form()->MakeForm(damaged, form, limit).code(), StatusCode::kDataLoss);
}

TEST(PixelFormTest, BytesThatAreNoFormAreDataLoss) {
  const auto codec = Codec(Cropped());
  const Bytes encoded = EncodeJpeg(MakeTexture(40, 30));
  Bytes form = FormOf(*codec, encoded, {.width = 40, .height = 30});
  Bytes row(codec->RowBytes(0));
  ScratchLimit limit;
  const auto decoded = [&](std::span<const std::byte> bytes) {
    return codec->decoded_form()->DecodeForm(bytes, {}, row, limit);
  };
  EXPECT_EQ(decoded(encoded).code(), StatusCode::kDataLoss);
  EXPECT_EQ(decoded({}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(decoded(std::span(form).first(form.size() - 3)).code(), StatusCode::kDataLoss);
  form[0] = std::byte(41);
  EXPECT_EQ(decoded(form).message(), "decoded image: 3608 bytes for 41 x 30 pixels");
}

}  // namespace
}  // namespace headrace
