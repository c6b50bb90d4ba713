#include "codec/image/whole_image.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "codec/image/image_codec.h"
#include "codec/image/image_decoder.h"
#include "codec/scratch_memory.h"

namespace headrace {
namespace {

class CheckedImageCodec final : public FieldCodec {
 public:
  explicit CheckedImageCodec(EncodedImages images)
      : others_pass_(images == EncodedImages::kDecodableOrOtherKind) {}

  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t encoded_bytes) const override {
    return encoded_bytes;
  }

  [[nodiscard]] bool keeps_bytes() const override { return true; }

  [[nodiscard]] std::uint64_t ScratchBytesMax() const override {
    return ImageScratchBytesMax(ImageTransform().pixels_max);
  }

  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    HEADRACE_CHECK(row.size() == encoded.size());
    limit.bytes_needed = 0;
    if (!others_pass_ || !IsImageOfOtherKind(encoded)) {
      HEADRACE_RETURN_IF_ERROR(DecodeWholeImage(encoded, ImageTransform().pixels_max, limit,
                                                [](auto, auto) { return nullptr; }));
    }
    if (!encoded.empty()) std::memcpy(row.data(), encoded.data(), encoded.size());
    return {};
  }

 private:
  const bool others_pass_;
};

}  // namespace

Status DecodeWholeImage(
    std::span<const std::byte> encoded, std::uint64_t pixels_max, ScratchLimit& limit,
    const std::function<std::byte*(std::uint32_t height, std::uint32_t width)>& room) {
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ImageDecoder> decoder,
                            OpenImage(encoded, pixels_max));
  const ImageSize size = decoder->size();
  const std::size_t row_bytes = kPixelBytes * size.width;
  limit.bytes_needed = decoder->ScratchBytes(/*halvings=*/0) + row_bytes;
  if (limit.bytes_needed > limit.bytes_max) return TakesTooMuch(size, limit.bytes_needed);
  HEADRACE_RETURN_IF_ERROR(decoder->Start({.width = size.width, .height = size.height}));
  std::byte* const out = room(size.height, size.width);
  std::vector<std::uint8_t, ScratchAllocator<std::uint8_t>> row(kPixelBytes *
                                                                decoder->row_pixels());
  const bool in_place = out != nullptr && decoder->row_pixels() == size.width;
  for (std::size_t y = 0; y < size.height; ++y) {
    std::byte* const to = out == nullptr ? nullptr : out + y * row_bytes;
    if (in_place) {
      HEADRACE_RETURN_IF_ERROR(decoder->ReadRow(reinterpret_cast<std::uint8_t*>(to)));
      continue;
    }
    HEADRACE_RETURN_IF_ERROR(decoder->ReadRow(row.data()));
    if (to == nullptr) continue;
    std::memcpy(to, row.data() + kPixelBytes * decoder->row_lead(), row_bytes);
  }
  return decoder->Finish(row.data());
}

bool IsImageOfOtherKind(std::span<const std::byte> encoded) {
  const std::string_view bytes(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  const bool is_bmp = bytes.starts_with("BM");
  const bool is_pnm = bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7';
  return is_bmp || is_pnm || IsRefusedImage(encoded);
}

std::unique_ptr<FieldCodec> MakeCheckedImageCodec(EncodedImages images) {
  HEADRACE_CHECK(images != EncodedImages::kUnchecked);
  return std::make_unique<CheckedImageCodec>(images);
}

}  // namespace headrace
