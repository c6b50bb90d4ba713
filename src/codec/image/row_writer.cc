#include "codec/image/row_writer.h"

#include <bit>
#include <cstring>
#include <numeric>

namespace headrace {

Normalizer::Normalizer(const std::array<float, 3>& mean, const std::array<float, 3>& std,
                       const RowKernels& kernels)
    : to_floats_(kernels.to_floats) {
  std::array<std::uint8_t, 256> samples{};
  std::iota(samples.begin(), samples.end(), std::uint8_t{0});
  for (unsigned c = 0; c < channels_.size(); ++c) {
    ChannelValues& channel = channels_[c];
    channel = {.mean = mean[c], .std = std[c], .per_std = 1.0F / std[c]};
    for (const std::uint8_t sample : samples) {
      channel.of[sample] = (static_cast<float>(sample) / 255.0F - mean[c]) / std[c];
    }
    std::array<float, 256> converted{};
    kernels.to_floats(samples.data(), samples.size(), channel, converted.data());
    using Bits = std::array<std::uint32_t, 256>;
    if (std::bit_cast<Bits>(converted) != std::bit_cast<Bits>(channel.of)) {
      to_floats_ = SupportedRowKernels().back().to_floats;
    }
  }
}

RowWriter::RowWriter(const ImageTransform& transform, const Normalizer& normalizer, bool flip,
                     std::span<std::byte> destination)
    : transform_(transform),
      normalizer_(normalizer),
      flip_(flip),
      destination_(destination.data()) {}

std::uint8_t* RowWriter::InPlace(std::uint32_t y) const {
  if (transform_.to_float || transform_.channels_first || flip_) return nullptr;
  return reinterpret_cast<std::uint8_t*>(destination_) + std::size_t{y} * transform_.width * 3;
}

void RowWriter::Write(std::uint32_t y, const std::uint8_t* row) const {
  const std::size_t width = transform_.width;
  const std::size_t plane = width * transform_.height;
  auto* const floats = reinterpret_cast<float*>(destination_);
  if (transform_.channels_first) {
    for (unsigned c = 0; c < 3; ++c, row += width) {
      const std::size_t at = c * plane + y * width;
      if (transform_.to_float) {
        normalizer_.Convert(c, row, width, floats + at);
      } else {
        std::memcpy(destination_ + at, row, width);
      }
    }
  } else if (transform_.to_float) {
    float* to = floats + y * width * 3;
    for (std::size_t i = 0; i < width * 3; i += 3) {
      for (unsigned c = 0; c < 3; ++c) to[i + c] = normalizer_.values(c)[row[i + c]];
    }
  } else {
    std::memcpy(destination_ + y * width * 3, row, width * 3);
  }
}

}  // namespace headrace
