#pragma once

// Chooses the part of an image that becomes its row of the batch. Pure arithmetic on sizes, with
// the results of torchvision. docs/codec.md specifies the random choices to the bit.

#include <cstdint>

#include "codec/codec.h"
#include "codec/image/image_codec.h"

namespace headrace {

struct ImageSize {
  std::uint32_t width = 0;  // pixels
  std::uint32_t height = 0;
};

// One axis of a resize: the pixels [begin, end) of the stored image are resized to `outputs_total`
// pixels, as if the image had no pixels outside. The row needs `outputs` of the resized pixels,
// from `outputs_first` on.
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

// The length of a side of `size` pixels after `halvings`, rounded up as libjpeg does.
constexpr std::uint32_t Halved(std::uint32_t size, unsigned halvings) {
  return static_cast<std::uint32_t>((std::uint64_t{size} + (1U << halvings) - 1) >> halvings);
}

// How a decoder can scale an image while it decodes it.
struct DecoderScaling {
  unsigned halvings_max = 0;     // of both sides
  unsigned chroma_halvings = 0;  // a scaled image has chroma at 1 / 2^chroma_halvings of its size
};

// A scaled image, and its chroma, must have at least this many times the resolution of the row. The
// difference from an exact row is inversely proportional to the square of this number;
// docs/codec.md gives the bound for 4.
inline constexpr unsigned kResolutionFactor = 4;

// The framing of an image of `size`, both sides at least 1, for the sample of `key`.
//
// Chooses the largest number of halvings that `scaling` allows and that leaves kResolutionFactor
// times the row's resolution on both axes; 0 if transform.exact. The random choices do not depend
// on halvings.
Framing ChooseFraming(const ImageTransform& transform, ImageSize size, const SampleKey& key,
                      const DecoderScaling& scaling);

// Whether ChooseFraming() may choose halvings for some sample's random choices. May be true of an
// image of which no choice is scaled.
bool MayBeScaled(const ImageTransform& transform, ImageSize size, const DecoderScaling& scaling);

// e^x, and ln x for x > 0, within 4 ulp, by the IEEE operations listed in docs/codec.md. libm
// differs in the last bit between processors, but every node must choose the same box.
double ExpToTheBit(double x);
double LogToTheBit(double x);

}  // namespace headrace
