#include "codec/image/row_writer.h"

namespace headrace {
namespace {

// `step`: elements from one pixel to the next, in source and destination; a negative step of the
// source flips. Instantiated for each pair of types that the loop can be unrolled for.
template <std::ptrdiff_t kFrom, std::ptrdiff_t kTo, typename Element, typename Convert>
void ConvertChannel(const std::uint8_t* from, Element* to, std::uint32_t count, Convert convert) {
  for (std::ptrdiff_t x = 0; x < static_cast<std::ptrdiff_t>(count); ++x) {
    to[x * kTo] = convert(from[x * kFrom]);
  }
}

struct Target {
  std::ptrdiff_t channel_step;
  bool channels_first;
  bool flip;
  std::uint32_t width;
};

template <std::ptrdiff_t kFrom, typename Element, typename ConvertOf>
void WriteRow(const std::uint8_t* pixels, Element* to, const Target& target, ConvertOf convert_of) {
  const std::uint8_t* start = target.flip ? pixels + (target.width - 1) * kFrom : pixels;
  for (unsigned c = 0; c < 3; ++c) {
    const std::uint8_t* from = start + c;
    Element* channel = to + c * target.channel_step;
    const auto convert = convert_of(c);
    if (target.channels_first && target.flip) {
      ConvertChannel<-kFrom, 1>(from, channel, target.width, convert);
    } else if (target.channels_first) {
      ConvertChannel<kFrom, 1>(from, channel, target.width, convert);
    } else if (target.flip) {
      ConvertChannel<-kFrom, 3>(from, channel, target.width, convert);
    } else {
      ConvertChannel<kFrom, 3>(from, channel, target.width, convert);
    }
  }
}

template <typename Element, typename ConvertOf>
void WriteRowOf(const std::uint8_t* pixels, std::size_t pixel_bytes, Element* to,
                const Target& target, ConvertOf convert_of) {
  if (pixel_bytes == 3) {
    WriteRow<3>(pixels, to, target, convert_of);
  } else {
    WriteRow<4>(pixels, to, target, convert_of);
  }
}

}  // namespace

NormalizeTable MakeNormalizeTable(const std::array<float, 3>& mean,
                                  const std::array<float, 3>& std) {
  NormalizeTable table{};
  for (std::size_t c = 0; c < table.size(); ++c) {
    for (std::size_t value = 0; value < table[c].size(); ++value) {
      table[c][value] = (static_cast<float>(value) / 255.0F - mean[c]) / std[c];
    }
  }
  return table;
}

RowWriter::RowWriter(const ImageTransform& transform, const NormalizeTable& table, bool flip,
                     std::span<std::byte> destination)
    : transform_(transform), table_(table), flip_(flip), destination_(destination.data()) {}

std::uint8_t* RowWriter::InPlace(std::uint32_t y) const {
  if (transform_.to_float || transform_.channels_first || flip_) return nullptr;
  return reinterpret_cast<std::uint8_t*>(destination_) + std::size_t{y} * transform_.width * 3;
}

void RowWriter::Write(std::uint32_t y, const std::uint8_t* pixels, std::size_t pixel_bytes) const {
  const std::size_t width = transform_.width;
  const std::size_t plane = width * transform_.height;
  const Target target{
      .channel_step = transform_.channels_first ? static_cast<std::ptrdiff_t>(plane) : 1,
      .channels_first = transform_.channels_first,
      .flip = flip_,
      .width = transform_.width};
  const std::size_t offset = y * width * (transform_.channels_first ? 1 : 3);
  if (transform_.to_float) {
    WriteRowOf(pixels, pixel_bytes, reinterpret_cast<float*>(destination_) + offset, target,
               [this](unsigned c) {
                 return [values = table_[c].data()](std::uint8_t v) { return values[v]; };
               });
  } else {
    WriteRowOf(pixels, pixel_bytes, reinterpret_cast<std::uint8_t*>(destination_) + offset, target,
               [](unsigned) { return [](std::uint8_t v) { return v; }; });
  }
}

}  // namespace headrace
