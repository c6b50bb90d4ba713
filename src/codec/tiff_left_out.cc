#include "codec/tiff_left_out.h"

#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {

Status TiffIsLeftOut(std::span<const std::byte> encoded) {
  return DataLoss(
      "decoding TIFF image of {}: this build of headrace cannot decode TIFF: convert the files to "
      "PNG, decode them by Pillow in a Python transform, or build headrace from source, which uses "
      "the system's libtiff",
      Counted(encoded.size(), "byte"));
}

}  // namespace headrace
