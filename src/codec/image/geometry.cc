#include "codec/image/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/prng.h"

namespace headrace {
namespace {

constexpr int kTries = 10;  // as torchvision

// A box of whole pixels in the stored image.
struct Box {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
};

double UniformBetween(Prng& prng, double low, double high) {
  return low + (high - low) * prng.Uniform();
}

// The largest centred box whose aspect is in `ratio`.
Box CentralBox(const std::array<double, 2>& ratio, ImageSize size) {
  const double aspect = static_cast<double>(size.width) / static_cast<double>(size.height);
  Box box{0, 0, size.width, size.height};
  if (aspect < ratio[0]) {
    const double height = std::nearbyint(static_cast<double>(size.width) / ratio[0]);
    box.height = static_cast<std::uint32_t>(std::max(1.0, height));
  } else if (aspect > ratio[1]) {
    const double width = std::nearbyint(static_cast<double>(size.height) * ratio[1]);
    box.width = static_cast<std::uint32_t>(std::max(1.0, width));
  }
  box.x = (size.width - box.width) / 2;
  box.y = (size.height - box.height) / 2;
  return box;
}

Box DrawBox(const RandomResizedCrop& crop, ImageSize size, Prng& prng) {
  const double area = static_cast<double>(size.width) * static_cast<double>(size.height);
  const double log_low = LogToTheBit(crop.ratio[0]);
  const double log_high = LogToTheBit(crop.ratio[1]);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * UniformBetween(prng, crop.scale[0], crop.scale[1]);
    const double aspect = ExpToTheBit(UniformBetween(prng, log_low, log_high));
    const double width = std::nearbyint(std::sqrt(target * aspect));
    const double height = std::nearbyint(std::sqrt(target / aspect));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    Box box;
    box.width = static_cast<std::uint32_t>(width);
    box.height = static_cast<std::uint32_t>(height);
    box.y = static_cast<std::uint32_t>(prng.Below(std::uint64_t{size.height} - box.height + 1));
    box.x = static_cast<std::uint32_t>(prng.Below(std::uint64_t{size.width} - box.width + 1));
    return box;
  }
  return CentralBox(crop.ratio, size);
}

AxisSpan WholeSpan(std::uint32_t begin, std::uint32_t length, std::uint32_t outputs) {
  return {.begin = begin,
          .end = begin + length,
          .outputs_total = outputs,
          .outputs_first = 0,
          .outputs = outputs};
}

// The centre `outputs` pixels of a side of `length` pixels resized to `resized`.
AxisSpan CentreSpan(std::uint32_t length, std::uint64_t resized, std::uint32_t outputs) {
  AxisSpan span = WholeSpan(0, length, outputs);
  span.outputs_total = resized;
  span.outputs_first =
      static_cast<std::uint64_t>(std::nearbyint(static_cast<double>(resized - outputs) / 2.0));
  return span;
}

// The resized longer side if the shorter one is resized to `resize_shorter`.
std::uint64_t ResizedLonger(std::uint32_t resize_shorter, std::uint32_t shorter,
                            std::uint32_t longer) {
  const auto product = static_cast<double>(std::uint64_t{resize_shorter} * longer);
  return static_cast<std::uint64_t>(product / static_cast<double>(shorter));
}

// The most halvings that leave kResolutionFactor times the row's resolution.
unsigned HalvingsOf(const AxisSpan& span, const DecoderScaling& scaling) {
  const std::uint64_t pixels = span.end - span.begin;
  const std::uint64_t needed = kResolutionFactor * span.outputs_total << scaling.chroma_halvings;
  unsigned halvings = 0;
  while (halvings < scaling.halvings_max && pixels >= needed << (halvings + 1)) ++halvings;
  return halvings;
}

}  // namespace

double ExpToTheBit(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr int kTerms = 16;
  const double powers_of_two = std::nearbyint(x / kLn2);
  const double rest = x - powers_of_two * kLn2;
  double sum = 1.0;  // Horner's scheme of the Taylor series
  for (int n = kTerms; n >= 1; --n) sum = 1.0 + sum * rest / n;
  return std::ldexp(sum, static_cast<int>(powers_of_two));
}

double LogToTheBit(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr int kSteps = 6;  // of Halley's iteration, which triples the correct digits each time
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  double log = 0.0;
  for (int i = 0; i < kSteps; ++i) {
    const double exp = ExpToTheBit(log);
    log += 2.0 * (mantissa - exp) / (mantissa + exp);
  }
  return exponent * kLn2 + log;
}

Framing ChooseFraming(const ImageTransform& transform, ImageSize size, const SampleKey& key,
                      const DecoderScaling& scaling) {
  Prng prng(key.seed, key.epoch, RandomStream::kAugment, Raw(key.sample));
  Framing framing;
  if (transform.random_resized_crop) {
    const Box box = DrawBox(*transform.random_resized_crop, size, prng);
    framing.x = WholeSpan(box.x, box.width, transform.width);
    framing.y = WholeSpan(box.y, box.height, transform.height);
  } else if (transform.resize_shorter == 0) {
    framing.x = WholeSpan(0, size.width, transform.width);
    framing.y = WholeSpan(0, size.height, transform.height);
  } else {
    const std::uint32_t shorter = std::min(size.width, size.height);
    const auto resized = [&](std::uint32_t side) -> std::uint64_t {
      if (side == shorter) return transform.resize_shorter;
      return ResizedLonger(transform.resize_shorter, shorter, side);
    };
    framing.x = CentreSpan(size.width, resized(size.width), transform.width);
    framing.y = CentreSpan(size.height, resized(size.height), transform.height);
  }
  framing.flip = transform.flip_probability > 0 && prng.Uniform() < transform.flip_probability;
  if (!transform.exact) {
    framing.halvings = std::min(HalvingsOf(framing.x, scaling), HalvingsOf(framing.y, scaling));
  }
  return framing;
}

// A box is never larger than the image.
bool MayBeScaled(const ImageTransform& transform, ImageSize size, const DecoderScaling& scaling) {
  if (transform.exact) return false;
  ImageTransform largest = transform;
  largest.random_resized_crop.reset();
  return ChooseFraming(largest, size, SampleKey(), scaling).halvings > 0;
}

}  // namespace headrace
