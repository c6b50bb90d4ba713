#include "codec/image/jpeg_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdio>  // jpeglib.h needs it
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>
// jerror.h must follow jpeglib.h.
#include <jerror.h>

#include "base/check.h"
#include "codec/jpeg/jpeg_decompressor.h"
#include "codec/jpeg/jpeg_memory.h"

namespace headrace {
namespace {

// A crop starts and ends this far outside the region: upsampling uses the neighbouring chroma
// sample, and treats the border of a crop as that of the image.
constexpr std::uint32_t kMarginPixels = 8;

constexpr unsigned kHalvingsMax = 3;  // one pixel for each DCT block

// Whether an end marker is in `bytes`. Searches from the end, where almost every file has it; the
// data of a scan cannot contain one.
bool HasEndMarker(std::span<const JOCTET> bytes) {
  for (std::size_t i = bytes.size(); i >= 2; --i) {
    if (bytes[i - 1] == JPEG_EOI && bytes[i - 2] == 0xFF) return true;
  }
  return false;
}

std::uint32_t RoundDown(std::uint32_t value, std::uint32_t unit) { return value / unit * unit; }

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// a * b / 255, rounded.
unsigned MultiplyBytes(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

class JpegDecoder final : public ImageDecoder {
 public:
  Status Open(std::span<const std::byte> encoded, std::uint64_t pixels_max);

  [[nodiscard]] DecoderScaling scaling() const override;
  [[nodiscard]] std::uint64_t ScratchBytes(unsigned halvings) const override {
    const std::uint64_t cmyk_row = is_cmyk() ? std::uint64_t{4} * size_.width : 0;
    return JpegMemory::BytesToDecode(info(), halvings, several_scans_) + cmyk_row;
  }
  Status Start(const ImageRegion& region) override;
  Status ReadRow(std::uint8_t* row) override;
  Status Finish(std::uint8_t* row) override;

 private:
  [[nodiscard]] jpeg_decompress_struct& info() { return decompressor_->info(); }
  [[nodiscard]] const jpeg_decompress_struct& info() const { return decompressor_->info(); }

  // As JpegDecompressor::Runs(); an error becomes a Status.
  template <typename Call>
  Status Guarded(Call call);

  Status CheckKind() const;
  [[nodiscard]] bool is_cmyk() const { return info().num_components == 4; }
  [[nodiscard]] bool CanDecodeRegion() const;
  Status SkipTo(const ImageRegion& region);
  Status ReadOne(std::uint8_t* row);
  void ConvertCmyk(std::uint8_t* row) const;
  [[nodiscard]] Status Error(const std::string& cause) const;

  JpegDecompressor::Taken decompressor_;

  bool complete_ = false;  // has its end marker
  bool several_scans_ = false;
  std::uint32_t rows_to_drop_ = 0;  // before the region
  std::vector<std::uint8_t> cmyk_;  // one row
};

template <typename Call>
Status JpegDecoder::Guarded(Call call) {
  return decompressor_->Runs(call) ? Status() : Error(decompressor_->error_text());
}

Status JpegDecoder::Error(const std::string& cause) const {
  const int code = decompressor_->error_code();
  const bool memory = code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE;
  std::string message = "decoding JPEG image";
  if (size_.width > 0) {
    message += fmt::format(" of {} x {} pixels", size_.width, size_.height);
  }
  return Status(memory ? StatusCode::kInvalidArgument : StatusCode::kDataLoss,
                message + ": " + cause);
}

Status JpegDecoder::Open(std::span<const std::byte> encoded, std::uint64_t pixels_max) {
  HEADRACE_ASSIGN_OR_RETURN(decompressor_, JpegDecompressor::Take(encoded));
  HEADRACE_RETURN_IF_ERROR(Guarded([this] { jpeg_read_header(&info(), TRUE); }));
  size_ = {info().image_width, info().image_height};
  HEADRACE_RETURN_IF_ERROR(CheckPixels(size_, pixels_max));
  HEADRACE_RETURN_IF_ERROR(CheckKind());
  complete_ = !decompressor_->source_ended() && HasEndMarker(decompressor_->rest());
  several_scans_ = jpeg_has_multiple_scans(&info()) != FALSE;
  if (!complete_ && several_scans_) {
    // Otherwise a scan that is missing altogether would go unnoticed.
    return Error("truncated: an image of several scans without end marker");
  }
  return {};
}

Status JpegDecoder::CheckKind() const {
  const int components = info().num_components;
  if (components == 1 || components == 3 || components == 4) return {};
  return Error(fmt::format("{} components, only 1, 3 and 4 are decoded", components));
}

// libjpeg's partial decode is exact, and free of known faults, only for these.
bool JpegDecoder::CanDecodeRegion() const {
  if (!complete_ || info().arith_code || several_scans_) return false;
  const auto sampled = [this](int component, int horizontal, int vertical) {
    const jpeg_component_info& c = info().comp_info[component];
    return c.h_samp_factor == horizontal && c.v_samp_factor == vertical;
  };
  if (info().num_components == 1) return sampled(0, 1, 1);
  return info().num_components == 3 && sampled(1, 1, 1) && sampled(2, 1, 1) &&
         (sampled(0, 1, 1) || sampled(0, 2, 1) || sampled(0, 2, 2));
}

// libjpeg scales the chroma of 4:2:0 less than the luma: a scaled image has it at full resolution.
// It can do so only on both axes together, and so not for 4:2:2.
DecoderScaling JpegDecoder::scaling() const {
  int coarser = 1;  // side of a pixel of the coarsest component, in scaled pixels
  for (int i = 0; i < info().num_components; ++i) {
    const jpeg_component_info& c = info().comp_info[i];
    const bool scaled_less = info().max_h_samp_factor % (2 * c.h_samp_factor) == 0 &&
                             info().max_v_samp_factor % (2 * c.v_samp_factor) == 0;
    const int less = scaled_less ? 2 : 1;
    coarser = std::max({coarser, CeilDiv(info().max_h_samp_factor, less * c.h_samp_factor),
                        CeilDiv(info().max_v_samp_factor, less * c.v_samp_factor)});
  }
  return {.halvings_max = kHalvingsMax,
          .chroma_halvings = static_cast<unsigned>(std::bit_width(unsigned(coarser) - 1U))};
}

Status JpegDecoder::Start(const ImageRegion& region) {
  HEADRACE_CHECK(region.halvings <= kHalvingsMax && region.width > 0 && region.height > 0);
  info().scale_num = 8U >> region.halvings;
  info().scale_denom = 8;
  info().dct_method = JDCT_ISLOW;
  info().do_fancy_upsampling = TRUE;  // libjpeg's crop needs it, and Pillow uses it
  info().out_color_space = is_cmyk() ? JCS_CMYK : JCS_EXT_RGB;
  const bool partial = CanDecodeRegion();
  HEADRACE_RETURN_IF_ERROR(Guarded([this] { jpeg_start_decompress(&info()); }));
  HEADRACE_CHECK(region.x + region.width <= info().output_width &&
                 region.y + region.height <= info().output_height);
  row_lead_ = region.x;
  rows_to_drop_ = region.y;
  if (partial) HEADRACE_RETURN_IF_ERROR(SkipTo(region));
  row_pixels_ = info().output_width;
  if (is_cmyk()) cmyk_.resize(std::size_t{row_pixels_} * 4);
  return {};
}

// Skips pixels left, right and above of `region`, as far as libjpeg can without changing others.
Status JpegDecoder::SkipTo(const ImageRegion& region) {
  const std::uint32_t left = region.x - std::min(region.x, kMarginPixels);
  const std::uint32_t right =
      std::min(info().output_width, region.x + region.width + kMarginPixels);
  if (left > 0 || right < info().output_width) {
    JDIMENSION crop_left = left;
    JDIMENSION crop_width = right - left;
    HEADRACE_RETURN_IF_ERROR(
        Guarded([&] { jpeg_crop_scanline(&info(), &crop_left, &crop_width); }));
    row_lead_ = region.x - crop_left;
  }
  // Whole rows of blocks: skipping others gives wrong rows (libjpeg-turbo issue 915).
  const auto block_rows = static_cast<std::uint32_t>(info().max_v_samp_factor) *
                          static_cast<std::uint32_t>(info().min_DCT_scaled_size);
  const std::uint32_t skip = RoundDown(region.y, block_rows);
  rows_to_drop_ = region.y - skip;
  if (skip == 0) return {};
  return Guarded([&] { jpeg_skip_scanlines(&info(), skip); });
}

Status JpegDecoder::ReadOne(std::uint8_t* row) {
  JSAMPROW rows[1] = {is_cmyk() ? cmyk_.data() : row};
  HEADRACE_RETURN_IF_ERROR(Guarded([&] { jpeg_read_scanlines(&info(), rows, 1); }));
  if (is_cmyk()) ConvertCmyk(row);
  return {};
}

Status JpegDecoder::ReadRow(std::uint8_t* row) {
  for (; rows_to_drop_ > 0; --rows_to_drop_) HEADRACE_RETURN_IF_ERROR(ReadOne(row));
  return ReadOne(row);
}

Status JpegDecoder::Finish(std::uint8_t* row) {
  if (complete_) return {};
  while (info().output_scanline < info().output_height) HEADRACE_RETURN_IF_ERROR(ReadOne(row));
  return {};
}

// Pillow's conversion. Adobe stores the inverse of each ink.
void JpegDecoder::ConvertCmyk(std::uint8_t* row) const {
  const std::uint8_t* from = cmyk_.data();
  for (std::uint32_t x = 0; x < row_pixels_; ++x, from += 4, row += kPixelBytes) {
    const unsigned light = from[3];  // 255 minus the black ink
    for (unsigned c = 0; c < 3; ++c) {
      const unsigned ink = MultiplyBytes(255U - from[c], light);
      row[c] = static_cast<std::uint8_t>(light - std::min(light, ink));
    }
  }
}

}  // namespace

Result<std::unique_ptr<ImageDecoder>> OpenJpeg(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max) {
  auto decoder = std::make_unique<JpegDecoder>();
  HEADRACE_RETURN_IF_ERROR(decoder->Open(encoded, pixels_max));
  return std::unique_ptr<ImageDecoder>(std::move(decoder));
}

}  // namespace headrace
