#pragma once

// Chooses the part of an image that becomes the row: pure arithmetic on sizes, equal to
// torchvision's, with the random choices specified to the bit in docs/codec.md.

#include <cstdint>

#include "codec/codec.h"
#include "codec/image/image_codec.h"

namespace headrace {

struct ImageSize {
  std::uint32_t width = 0;  // pixels
  std::uint32_t height = 0;
};

// One axis of a resize: the pixels [begin, end) of the stored image become `outputs_total` pixels,
// of which the row needs `outputs` from `outputs_first` on. They are resampled as if the image
// ended there.
struct AxisSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t outputs_total = 0;
  std::uint64_t outputs_first = 0;
  std::uint32_t outputs = 0;

  friend constexpr bool operator==(const AxisSpan&, const AxisSpan&) = default;
};

// The geometry of one image's row.
struct Framing {
  AxisSpan x;
  AxisSpan y;
  unsigned halvings = 0;  // the decoder divides both sides by 2^halvings; spans are unscaled
  bool flip = false;      // mirror left and right
};

// Pixels of a side of `size` after `halvings`: rounded up, as libjpeg does.
constexpr std::uint32_t Halved(std::uint32_t size, unsigned halvings) {
  return static_cast<std::uint32_t>((std::uint64_t{size} + (1U << halvings) - 1) >> halvings);
}

// How a decoder can scale an image while it decodes it.
struct DecoderScaling {
  unsigned halvings_max = 0;     // of both sides
  unsigned chroma_halvings = 0;  // how much coarser the colours of a scaled image are
};

// A scaled image, and its chroma, must have at least this many times the resolution of the row. The
// difference from an exact row falls with the square of this number; docs/codec.md states the bound
// for 4.
inline constexpr unsigned kResolutionKept = 4;

// The framing of an image of `size`, both sides at least 1, for the sample of `key`.
//
// Chooses the most halvings that `scaling` allows and that keep kResolutionKept times the row's
// resolution on both axes; none if transform.exact. The random choices do not depend on halvings.
Framing ChooseFraming(const ImageTransform& transform, ImageSize size, const SampleKey& key,
                      const DecoderScaling& scaling);

// e^x and ln x of x > 0, in IEEE operations listed in docs/codec.md: those of libm differ in the
// last bit between processors, and every node must choose the same box. Within 4 ulp.
double ExpToTheBit(double x);
double LogToTheBit(double x);

}  // namespace headrace
