#pragma once

// Which part of an image becomes the row: pure arithmetic on sizes, equal to torchvision's, with
// the random draws specified to the bit in docs/codec.md.

#include <cstdint>

#include "codec/codec.h"
#include "codec/image_codec.h"

namespace headrace {

struct ImageSize {
  std::uint32_t width = 0;  // pixels
  std::uint32_t height = 0;
};

// One axis of a resize: the interval [begin, end) of the pixels of the image becomes
// `outputs_total` pixels, of which `outputs` from `outputs_first` on are wanted. Filters see only
// the pixels [clamp_begin, clamp_end), as if the image ended there.
struct AxisSpan {
  double begin = 0;
  double end = 0;
  std::uint32_t clamp_begin = 0;
  std::uint32_t clamp_end = 0;
  std::uint64_t outputs_total = 0;
  std::uint64_t outputs_first = 0;
  std::uint32_t outputs = 0;

  friend constexpr bool operator==(const AxisSpan&, const AxisSpan&) = default;
};

// How one image becomes its row.
struct Framing {
  AxisSpan x;
  AxisSpan y;
  unsigned halvings = 0;  // the decoder reduces both sides by 2^halvings first; spans count so
  bool flip = false;      // left and right change places
};

// Pixels of a side of `size` after `halvings`: rounded up, as libjpeg does.
constexpr std::uint32_t Halved(std::uint32_t size, unsigned halvings) {
  return static_cast<std::uint32_t>((std::uint64_t{size} + (1U << halvings) - 1) >> halvings);
}

// The framing of an image of `size`, both sides at least 1, for the sample of `key`.
//
// `halvings_max` is what the decoder can do; no more is asked for than leaves twice the wanted
// resolution on both axes, and none if transform.exact. The draws do not depend on it.
Framing ChooseFraming(const ImageTransform& transform, ImageSize size, const SampleKey& key,
                      unsigned halvings_max);

// e^x and ln x of x > 0, in IEEE operations that docs/codec.md lists: those of libm differ in the
// last bit between processors, and every node must draw the same box. Within 4 ulp.
double ExpToTheBit(double x);
double LogToTheBit(double x);

}  // namespace headrace
