#include "codec/image/tiff_left_out.h"

#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {

Result<std::unique_ptr<ImageDecoder>> RefuseTiff(std::span<const std::byte> encoded,
                                                 std::uint64_t /*pixels_max*/) {
  return DataLoss(
      "decoding TIFF image of {}: this build of headrace cannot decode TIFF: convert the files to "
      "PNG, decode them by Pillow in a Python transform, or build headrace from source, which uses "
      "the system's libtiff",
      Counted(encoded.size(), "byte"));
}

bool IsTiffLeftOut(std::span<const std::byte> /*encoded*/) { return true; }

}  // namespace headrace
