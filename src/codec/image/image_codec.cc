#include "codec/image/image_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "codec/decoded_form.h"
#include "codec/image/geometry.h"
#include "codec/image/image_decoder.h"
#include "codec/image/pixel_form.h"
#include "codec/image/resample.h"
#include "codec/image/row_writer.h"

namespace headrace {
namespace {

constexpr std::uint32_t kSideMax = 1U << 16;  // of a row, pixels

// Memory that a thread keeps between images, except after a huge one.
struct Scratch {
  AxisFilter horizontal;
  AxisFilter vertical;
  Resampler resampler;
  ScratchBuffer row;

  void Shrink(std::uint64_t bytes_max) {
    const std::size_t bytes =
        horizontal.memory_bytes() + vertical.memory_bytes() + resampler.memory_bytes() + row.size();
    if (bytes > bytes_max) *this = Scratch();
  }
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

bool IsInterval(const std::array<double, 2>& interval) {
  return std::isfinite(interval[0]) && std::isfinite(interval[1]) && interval[0] > 0 &&
         interval[0] <= interval[1];
}

std::string ToText(const std::array<double, 2>& interval) {
  return fmt::format("[{:f}, {:f}]", interval[0], interval[1]);
}

Status CheckNormalize(const ImageTransform& transform) {
  for (std::size_t c = 0; c < 3; ++c) {
    if (!std::isfinite(transform.mean[c])) {
      return InvalidArgument("image transform mean: got {:f} for channel {}, must be finite",
                             transform.mean[c], c);
    }
    if (!std::isfinite(transform.std[c]) || !(transform.std[c] > 0)) {
      return InvalidArgument(
          "image transform std: got {:f} for channel {}, must be above 0 and finite",
          transform.std[c], c);
    }
  }
  return {};
}

Status CheckTransform(const ImageTransform& transform) {
  const auto side_ok = [](std::uint32_t side) { return side >= 1 && side <= kSideMax; };
  if (!side_ok(transform.height) || !side_ok(transform.width)) {
    return InvalidArgument("image transform height x width: got {} x {}, each must be in [1, {}]",
                           transform.height, transform.width, kSideMax);
  }
  if (const auto& crop = transform.random_resized_crop; crop.has_value()) {
    if (!IsInterval(crop->scale) || crop->scale[1] > 1) {
      return InvalidArgument("image transform scale: got {}, must be an interval in (0, 1]",
                             ToText(crop->scale));
    }
    if (!IsInterval(crop->ratio)) {
      return InvalidArgument("image transform ratio: got {}, must be an interval above 0",
                             ToText(crop->ratio));
    }
    if (transform.resize_shorter != 0) {
      return InvalidArgument(
          "image transform resize_shorter: got {} beside random_resized_crop, must be 0",
          transform.resize_shorter);
    }
  }
  if (transform.resize_shorter != 0 &&
      (transform.resize_shorter > kSideMax || transform.resize_shorter < transform.height ||
       transform.resize_shorter < transform.width)) {
    return InvalidArgument(
        "image transform resize_shorter: got {}, must be 0 or in [{}, {}]: the crop must fit into "
        "every resized image",
        transform.resize_shorter, std::max(transform.height, transform.width), kSideMax);
  }
  if (!(transform.flip_probability >= 0 && transform.flip_probability <= 1)) {
    return InvalidArgument("image transform flip_probability: got {:f}, must be in [0, 1]",
                           transform.flip_probability);
  }
  if (transform.pixels_max == 0) {
    return InvalidArgument("image transform pixels_max: got 0, must be above 0");
  }
  return CheckNormalize(transform);
}

ImageRegion RegionOf(const Scratch& scratch, const Framing& framing) {
  return {.x = scratch.horizontal.input_begin(),
          .y = scratch.vertical.input_begin(),
          .width = scratch.horizontal.inputs(),
          .height = scratch.vertical.inputs(),
          .halvings = framing.halvings};
}

// Rows that need nothing but to be copied: decoded in place if the decoder decodes no more than
// the region.
Status CopyRows(ImageDecoder& decoder, const ImageRegion& region, const RowWriter& writer,
                ScratchBuffer& buffer) {
  HEADRACE_RETURN_IF_ERROR(decoder.Start(region));
  std::uint8_t* row = buffer.Reserve(decoder.row_pixels() * kPixelBytes);
  const bool whole_rows = decoder.row_pixels() == region.width;
  for (std::uint32_t y = 0; y < region.height; ++y) {
    HEADRACE_RETURN_IF_ERROR(decoder.ReadRow(whole_rows ? writer.InPlace(y) : row));
    if (!whole_rows) writer.Write(y, row + decoder.row_lead() * kPixelBytes);
  }
  return decoder.Finish(row);
}

Status ResampleRows(ImageDecoder& decoder, const ImageRegion& region, Resampler::Order order,
                    const RowWriter& writer, Scratch& scratch) {
  HEADRACE_RETURN_IF_ERROR(decoder.Start(region));
  Resampler& resampler = scratch.resampler;
  resampler.Begin(scratch.horizontal, scratch.vertical, order,
                  {.row_pixels = decoder.row_pixels(), .lead = decoder.row_lead()},
                  writer.layout());
  std::uint32_t written = 0;
  for (std::uint32_t y = 0; y < region.height;) {
    const std::uint32_t count = std::min(Resampler::kRowsAtOnce, region.height - y);
    for (std::uint32_t r = 0; r < count; ++r) {
      HEADRACE_RETURN_IF_ERROR(decoder.ReadRow(resampler.input(r)));
    }
    resampler.Push(count);
    while (const std::uint8_t* row = resampler.Next()) {
      writer.Write(written++, row);
    }
    y += count;
  }
  HEADRACE_CHECK(written == scratch.vertical.outputs());
  return decoder.Finish(resampler.input(0));
}

class ImageCodec final : public FieldCodec, public DecodedForm {
 public:
  explicit ImageCodec(const ImageTransform& transform)
      : transform_(transform), normalizer_(transform.mean, transform.std) {}

  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t /*encoded_bytes*/) const override {
    return std::uint64_t{3} * transform_.height * transform_.width *
           (transform_.to_float ? sizeof(float) : 1);
  }

  [[nodiscard]] std::uint64_t ScratchBytesMax() const override {
    return ImageScratchBytesMax(transform_.pixels_max);
  }

  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& key,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    HEADRACE_CHECK(row.size() == RowBytes(encoded.size()));
    HEADRACE_CHECK(!transform_.to_float ||
                   reinterpret_cast<std::uintptr_t>(row.data()) % alignof(float) == 0);
    HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ImageDecoder> decoder,
                              OpenImage(encoded, transform_.pixels_max));
    return MakeRow(*decoder, key, row, limit);
  }

  [[nodiscard]] const DecodedForm* decoded_form() const override { return this; }

  Status MakeForm(std::span<const std::byte> encoded, std::span<std::byte> form,
                  ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ImageDecoder> decoder,
                              OpenImage(encoded, transform_.pixels_max));
    const ImageSize size = decoder->size();
    if (form.size() != PixelFormBytes(size)) {
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("decoding image of {} x {} pixels into {} bytes: it takes {}",
                                size.width, size.height, form.size(), PixelFormBytes(size)));
    }
    if (MayBeScaled(transform_, size, decoder->scaling())) {
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("decoding image of {} x {} pixels: rows may be made of it scaled",
                                size.width, size.height));
    }
    limit.bytes_needed = decoder->ScratchBytes(/*halvings=*/0) + kPixelBytes * size.width;
    if (limit.bytes_needed > limit.bytes_max) return TakesTooMuch(size, limit.bytes_needed);
    return FillPixelForm(*decoder, form);
  }

  Status DecodeForm(std::span<const std::byte> form, const SampleKey& key, std::span<std::byte> row,
                    ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    HEADRACE_CHECK(row.size() == RowBytes(form.size()));
    HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ImageDecoder> decoder, OpenPixelForm(form));
    return MakeRow(*decoder, key, row, limit);
  }

 private:
  Status MakeRow(ImageDecoder& decoder, const SampleKey& key, std::span<std::byte> row,
                 ScratchLimit& limit) const {
    const Framing framing = ChooseFraming(transform_, decoder.size(), key, decoder.scaling());
    limit.bytes_needed = ScratchBytes(decoder, framing);
    if (limit.bytes_needed > limit.bytes_max) {
      return TakesTooMuch(decoder.size(), limit.bytes_needed);
    }
    Scratch& scratch = ThreadScratch();
    if (limit.bytes_needed > limit.retained_bytes_max) scratch = Scratch();
    Status status = DecodeOpened(decoder, framing, row, scratch);
    scratch.Shrink(limit.retained_bytes_max);
    return status;
  }

  static std::uint64_t ScratchBytes(const ImageDecoder& decoder, const Framing& framing) {
    const std::uint32_t row_pixels = Halved(decoder.size().width, framing.halvings);
    const std::uint64_t copied_row = kPixelBytes * row_pixels;
    return decoder.ScratchBytes(framing.halvings) + copied_row +
           AxisFilter::MemoryBytes(framing.x, framing.halvings) +
           AxisFilter::MemoryBytes(framing.y, framing.halvings) +
           Resampler::MemoryBytes(framing, row_pixels);
  }

  Status DecodeOpened(ImageDecoder& decoder, const Framing& framing, std::span<std::byte> row,
                      Scratch& scratch) const {
    scratch.horizontal.Prepare(framing.x, framing.halvings);
    scratch.vertical.Prepare(framing.y, framing.halvings);
    const ImageRegion region = RegionOf(scratch, framing);
    const RowWriter writer(transform_, normalizer_, framing.flip, row);
    if (scratch.horizontal.identity() && scratch.vertical.identity() &&
        writer.InPlace(0) != nullptr) {
      return CopyRows(decoder, region, writer, scratch.row);
    }
    return ResampleRows(decoder, region, Resampler::OrderOf(framing.x, framing.y), writer, scratch);
  }

  const ImageTransform transform_;
  const Normalizer normalizer_;
};

}  // namespace

Result<std::unique_ptr<FieldCodec>> MakeImageCodec(const ImageTransform& transform) {
  HEADRACE_RETURN_IF_ERROR(CheckTransform(transform));
  return std::unique_ptr<FieldCodec>(std::make_unique<ImageCodec>(transform));
}

}  // namespace headrace
