#pragma once

#include <memory>

#include "codec/codec.h"
#include "headrace/part_options.h"
#include "headrace/status.h"

namespace headrace {

// Makes the codec for encoded images. RowBytes() is 3 * height * width * (to_float ? 4 : 1); with
// to_float the row must be aligned to 4 bytes.
//
// The first bytes decide the format, never a name. EXIF orientation is not applied, as in
// torchvision's loaders. Kinds of images, random choices and exactness: docs/codec.md.
//
// Memory: a decode holds a few rows of the image, or the whole image if it is a progressive JPEG,
// an interlaced PNG, a WebP, or a TIFF of one strip. Each thread keeps some for its next image: see
// ScratchLimit.
//
// Errors: InvalidArgument  an invalid transform: a size of 0, an empty interval, std of 0, a centre
//                          crop larger than resize_shorter, ...
Result<std::unique_ptr<FieldCodec>> MakeImageCodec(const ImageTransform& transform);

}  // namespace headrace
