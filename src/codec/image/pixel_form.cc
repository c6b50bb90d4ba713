#include "codec/image/pixel_form.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "codec/scratch_memory.h"

namespace headrace {
namespace {

void PutNumber(std::uint32_t number, std::byte* to) {
  for (unsigned i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(number >> (8 * i));
}

std::uint32_t GetNumber(const std::byte* from) {
  std::uint32_t number = 0;
  for (unsigned i = 0; i < 4; ++i) number |= std::to_integer<std::uint32_t>(from[i]) << (8 * i);
  return number;
}

class PixelDecoder final : public ImageDecoder {
 public:
  PixelDecoder(ImageSize size, const std::byte* pixels) : pixels_(pixels) { size_ = size; }

  [[nodiscard]] std::uint64_t ScratchBytes(unsigned /*halvings*/) const override { return 0; }

  Status Start(const ImageRegion& region) override {
    HEADRACE_CHECK(region.halvings == 0 && region.x + region.width <= size_.width &&
                   region.y + region.height <= size_.height);
    row_pixels_ = region.width;
    const std::uint64_t first = std::uint64_t{region.y} * size_.width + region.x;
    pixels_ += kPixelBytes * first;
    return {};
  }

  Status ReadRow(std::uint8_t* row) override {
    std::memcpy(row, pixels_, kPixelBytes * row_pixels_);
    pixels_ += kPixelBytes * size_.width;
    return {};
  }

  Status Finish(std::uint8_t* /*row*/) override { return {}; }

 private:
  const std::byte* pixels_;  // of the next row of the region
};

}  // namespace

Status FillPixelForm(ImageDecoder& decoder, std::span<std::byte> form) {
  const ImageSize size = decoder.size();
  HEADRACE_CHECK(form.size() == PixelFormBytes(size));
  PutNumber(size.width, form.data());
  PutNumber(size.height, form.data() + 4);
  HEADRACE_RETURN_IF_ERROR(decoder.Start({.width = size.width, .height = size.height}));
  const std::size_t row_bytes = kPixelBytes * size.width;
  std::vector<std::uint8_t, ScratchAllocator<std::uint8_t>> row(kPixelBytes * decoder.row_pixels());
  const bool in_place = decoder.row_pixels() == size.width;
  std::byte* to = form.data() + kPixelFormHeaderBytes;
  for (std::uint32_t y = 0; y < size.height; ++y, to += row_bytes) {
    HEADRACE_RETURN_IF_ERROR(
        decoder.ReadRow(in_place ? reinterpret_cast<std::uint8_t*>(to) : row.data()));
    if (in_place) continue;
    std::memcpy(to, row.data() + kPixelBytes * decoder.row_lead(), row_bytes);
  }
  return decoder.Finish(row.data());
}

Result<std::unique_ptr<ImageDecoder>> OpenPixelForm(std::span<const std::byte> form) {
  ImageSize size;
  if (form.size() >= kPixelFormHeaderBytes) {
    size = {.width = GetNumber(form.data()), .height = GetNumber(form.data() + 4)};
  }
  if (size.width == 0 || size.height == 0 || size.width > kImageSideMax ||
      size.height > kImageSideMax || form.size() != PixelFormBytes(size)) {
    return DataLoss("decoded image: {} for {} x {} pixels", Counted(form.size(), "byte"),
                    size.width, size.height);
  }
  return std::unique_ptr<ImageDecoder>(
      std::make_unique<PixelDecoder>(size, form.data() + kPixelFormHeaderBytes));
}

}  // namespace headrace
