#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "codec/codec.h"

namespace headrace {

// A random box of the image: torchvision's algorithm.
struct RandomResizedCrop {
  std::array<double, 2> scale = {0.08, 1.0};         // share of the area
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  // width / height
};

// How an encoded image (JPEG, PNG, WebP or TIFF; grey, palette and alpha become RGB) becomes a row
// of fixed shape. The steps run in this order; geometry is that of torchvision and resampling that
// of Pillow: bilinear, antialiased, 8-bit between the two passes.
struct ImageTransform {
  // A random box of the image, resized to height x width, ...
  std::optional<RandomResizedCrop> random_resized_crop;
  // ... or the whole image: its shorter side is resized to this (0: the image is resized to height
  // x width, whatever its aspect), and then cropped to the centre height x width.
  std::uint32_t resize_shorter = 0;

  double flip_probability = 0;  // horizontal

  std::uint32_t height = 224;  // of the row, pixels
  std::uint32_t width = 224;

  bool to_float = false;  // float32, x / 255 and then normalised; else uint8, not normalised
  std::array<float, 3> mean = {0, 0, 0};  // per channel, of values in [0, 1]
  std::array<float, 3> std = {1, 1, 1};
  bool channels_first = true;  // row is [3, height, width]; else [height, width, 3]

  // Exact: every pixel equals Pillow's from a full decode. Fast: the decoder scales by 1/2, 1/4 or
  // 1/8 in the DCT if that keeps four times the row's resolution. docs/codec.md states the
  // difference.
  bool exact = false;

  std::uint64_t pixels_max = 178956970;  // refuses larger images (Pillow's limit)
};

// Makes the codec for encoded images. RowBytes() is 3 * height * width * (to_float ? 4 : 1); with
// to_float the row must be aligned to 4 bytes.
//
// The first bytes decide the format, never a name. EXIF orientation is not applied, as in
// torchvision's loaders. Kinds of images, random choices and exactness: docs/codec.md.
//
// Memory: a decode holds a few rows of the image, or the whole image if it is a progressive JPEG,
// an interlaced PNG, a WebP, or a TIFF of one strip. Each thread keeps some for its next image: see
// ScratchLimit. Errors: InvalidArgument  an invalid transform: a size of 0, an empty interval, std
// of 0, a
//                          centre crop larger than resize_shorter, ...
Result<std::unique_ptr<FieldCodec>> MakeImageCodec(const ImageTransform& transform);

}  // namespace headrace
