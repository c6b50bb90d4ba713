#include "codec/image/jpeg_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>
// jerror.h must follow jpeglib.h.
#include <jerror.h>

#include "base/check.h"
#include "codec/image/jpeg_memory.h"

namespace headrace {
namespace {

// A crop starts and ends this far outside the region: upsampling uses the neighbouring chroma
// sample, and treats the border of a crop as that of the image.
constexpr std::uint32_t kMarginPixels = 8;

// A legitimate image needs fewer. Each scan of a progressive image may cost a pass over all of it
// for a few bytes of input.
constexpr int kScansMax = 500;

constexpr unsigned kHalvingsMax = 3;  // one pixel for each DCT block

// libjpeg reports errors by a call that must not return: it jumps to the method that called
// libjpeg. No frame in between may hold an object with a destructor. The frames are libjpeg's own,
// which is C, and lambdas in this file, which hold none.
struct ErrorManager {
  jpeg_error_mgr base;  // first, so that a pointer to it is a pointer to this object
  std::jmp_buf escape;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void EscapeFromLibjpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  errors->base.format_message(info, errors->text);
  std::longjmp(errors->escape, 1);  // NOLINT(cert-err52-cpp): see ErrorManager
}

// After a warning libjpeg continues with invented pixels, except for these warnings.
bool IsHarmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_BOGUS_ICC || warning == JWRN_JFIF_MAJOR;
}

void OnMessage(j_common_ptr info, int level) {
  if (level < 0 && !IsHarmless(info->err->msg_code)) EscapeFromLibjpeg(info);
}

void PrintNothing(j_common_ptr) {}

// The source of a JPEG in memory. After its end it returns an end marker, as often as asked, and
// remembers that: the entropy decoder reads a few bytes ahead, so this alone is no error. If pixels
// are missing, libjpeg then warns.
struct MemorySource {
  jpeg_source_mgr base;  // first, as in ErrorManager
  bool ended;
};

constexpr JOCTET kEndMarker[2] = {0xFF, JPEG_EOI};

void SourceDoNothing(j_decompress_ptr) {}

boolean SourceGiveEnd(j_decompress_ptr info) {
  auto* source = reinterpret_cast<MemorySource*>(info->src);
  source->ended = true;
  source->base.next_input_byte = kEndMarker;
  source->base.bytes_in_buffer = sizeof(kEndMarker);
  return TRUE;
}

void SourceSkip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  jpeg_source_mgr* source = info->src;
  const auto bytes = std::min(static_cast<std::size_t>(count), source->bytes_in_buffer);
  source->next_input_byte += bytes;
  source->bytes_in_buffer -= bytes;
}

void LimitScans(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kScansMax) return;
  info->err->msg_code = JERR_NOTIMPL;
  EscapeFromLibjpeg(info);
}

// Whether an end marker is in `bytes`. Searches from the end, where almost every file has it; the
// data of a scan cannot contain one.
bool HasEndMarker(const JOCTET* bytes, std::size_t size) {
  for (std::size_t i = size; i >= 2; --i) {
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
  JpegDecoder();
  ~JpegDecoder() override;

  Status Open(std::span<const std::byte> encoded, std::uint64_t pixels_max);

  [[nodiscard]] DecoderScaling scaling() const override;
  [[nodiscard]] std::uint64_t ScratchBytes(unsigned halvings) const override {
    const std::uint64_t cmyk_row = is_cmyk() ? std::uint64_t{4} * size_.width : 0;
    return JpegMemory::BytesToDecode(info_, halvings, several_scans_) + cmyk_row;
  }
  Status Start(const ImageRegion& region) override;
  Status ReadRow(std::uint8_t* row) override;
  Status Finish(std::uint8_t* row) override;

 private:
  // Runs `call`, which calls libjpeg and holds no objects; its error becomes a Status.
  template <typename Call>
  Status Guarded(Call call);

  Status CheckKind() const;
  [[nodiscard]] bool is_cmyk() const { return info_.num_components == 4; }
  [[nodiscard]] bool CanDecodeRegion() const;
  Status SkipTo(const ImageRegion& region);
  Status ReadOne(std::uint8_t* row);
  void ConvertCmyk(std::uint8_t* row) const;
  [[nodiscard]] Status Error(const std::string& cause) const;

  ErrorManager errors_{};
  MemorySource source_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  JpegMemory memory_;

  bool created_ = false;
  bool complete_ = false;  // has its end marker
  bool several_scans_ = false;
  std::uint32_t rows_to_drop_ = 0;  // before the region
  std::vector<std::uint8_t> cmyk_;  // one row
};

JpegDecoder::JpegDecoder() {
  info_.err = jpeg_std_error(&errors_.base);
  errors_.base.error_exit = EscapeFromLibjpeg;
  errors_.base.emit_message = OnMessage;
  errors_.base.output_message = PrintNothing;
}

JpegDecoder::~JpegDecoder() {
  if (created_) jpeg_destroy_decompress(&info_);
}

template <typename Call>
Status JpegDecoder::Guarded(Call call) {
  // NOLINTNEXTLINE(cert-err52-cpp): see ErrorManager
  if (setjmp(errors_.escape) != 0) return Error(errors_.text);
  call();
  return {};
}

Status JpegDecoder::Error(const std::string& cause) const {
  const int code = errors_.base.msg_code;
  const bool memory = code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE;
  std::string message = "decoding JPEG image";
  if (size_.width > 0) {
    message += fmt::format(" of {} x {} pixels", size_.width, size_.height);
  }
  return Status(memory ? StatusCode::kInvalidArgument : StatusCode::kDataLoss,
                message + ": " + cause);
}

Status JpegDecoder::Open(std::span<const std::byte> encoded, std::uint64_t pixels_max) {
  HEADRACE_RETURN_IF_ERROR(Guarded([this] { jpeg_create_decompress(&info_); }));
  created_ = true;
  memory_.Attach(&info_);
  source_.base.next_input_byte = reinterpret_cast<const JOCTET*>(encoded.data());
  source_.base.bytes_in_buffer = encoded.size();
  source_.base.init_source = SourceDoNothing;
  source_.base.fill_input_buffer = SourceGiveEnd;
  source_.base.skip_input_data = SourceSkip;
  source_.base.resync_to_restart = jpeg_resync_to_restart;
  source_.base.term_source = SourceDoNothing;
  info_.src = &source_.base;
  progress_.progress_monitor = LimitScans;
  info_.progress = &progress_;

  HEADRACE_RETURN_IF_ERROR(Guarded([this] { jpeg_read_header(&info_, TRUE); }));
  size_ = {info_.image_width, info_.image_height};
  HEADRACE_RETURN_IF_ERROR(CheckPixels(size_, pixels_max));
  HEADRACE_RETURN_IF_ERROR(CheckKind());
  complete_ =
      !source_.ended && HasEndMarker(source_.base.next_input_byte, source_.base.bytes_in_buffer);
  several_scans_ = jpeg_has_multiple_scans(&info_) != FALSE;
  if (!complete_ && several_scans_) {
    // Otherwise a scan that is missing altogether would go unnoticed.
    return Error("truncated: an image of several scans without end marker");
  }
  return {};
}

Status JpegDecoder::CheckKind() const {
  const int components = info_.num_components;
  if (components == 1 || components == 3 || components == 4) return {};
  return Error(fmt::format("{} components, only 1, 3 and 4 are decoded", components));
}

// libjpeg's partial decode is exact, and free of known faults, only for these.
bool JpegDecoder::CanDecodeRegion() const {
  if (!complete_ || info_.arith_code || several_scans_) return false;
  const auto sampled = [this](int component, int horizontal, int vertical) {
    const jpeg_component_info& c = info_.comp_info[component];
    return c.h_samp_factor == horizontal && c.v_samp_factor == vertical;
  };
  if (info_.num_components == 1) return sampled(0, 1, 1);
  return info_.num_components == 3 && sampled(1, 1, 1) && sampled(2, 1, 1) &&
         (sampled(0, 1, 1) || sampled(0, 2, 1) || sampled(0, 2, 2));
}

// libjpeg scales the chroma of 4:2:0 less than the luma: a scaled image has it at full resolution.
// It can do so only on both axes together, and so not for 4:2:2.
DecoderScaling JpegDecoder::scaling() const {
  int coarser = 1;  // side of a pixel of the coarsest component, in scaled pixels
  for (int i = 0; i < info_.num_components; ++i) {
    const jpeg_component_info& c = info_.comp_info[i];
    const bool scaled_less = info_.max_h_samp_factor % (2 * c.h_samp_factor) == 0 &&
                             info_.max_v_samp_factor % (2 * c.v_samp_factor) == 0;
    const int less = scaled_less ? 2 : 1;
    coarser = std::max({coarser, CeilDiv(info_.max_h_samp_factor, less * c.h_samp_factor),
                        CeilDiv(info_.max_v_samp_factor, less * c.v_samp_factor)});
  }
  return {.halvings_max = kHalvingsMax,
          .chroma_halvings = static_cast<unsigned>(std::bit_width(unsigned(coarser) - 1U))};
}

Status JpegDecoder::Start(const ImageRegion& region) {
  HEADRACE_CHECK(region.halvings <= kHalvingsMax && region.width > 0 && region.height > 0);
  info_.scale_num = 8U >> region.halvings;
  info_.scale_denom = 8;
  info_.dct_method = JDCT_ISLOW;
  info_.do_fancy_upsampling = TRUE;  // libjpeg's crop needs it, and Pillow uses it
  info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_EXT_RGB;
  const bool partial = CanDecodeRegion();
  HEADRACE_RETURN_IF_ERROR(Guarded([this] { jpeg_start_decompress(&info_); }));
  HEADRACE_CHECK(region.x + region.width <= info_.output_width &&
                 region.y + region.height <= info_.output_height);
  row_lead_ = region.x;
  rows_to_drop_ = region.y;
  if (partial) HEADRACE_RETURN_IF_ERROR(SkipTo(region));
  row_pixels_ = info_.output_width;
  if (is_cmyk()) cmyk_.resize(std::size_t{row_pixels_} * 4);
  return {};
}

// Skips pixels left, right and above of `region`, as far as libjpeg can without changing others.
Status JpegDecoder::SkipTo(const ImageRegion& region) {
  const std::uint32_t left = region.x - std::min(region.x, kMarginPixels);
  const std::uint32_t right = std::min(info_.output_width, region.x + region.width + kMarginPixels);
  if (left > 0 || right < info_.output_width) {
    JDIMENSION crop_left = left;
    JDIMENSION crop_width = right - left;
    HEADRACE_RETURN_IF_ERROR(Guarded([&] { jpeg_crop_scanline(&info_, &crop_left, &crop_width); }));
    row_lead_ = region.x - crop_left;
  }
  // Whole rows of blocks: skipping others gives wrong rows (libjpeg-turbo issue 915).
  const auto block_rows = static_cast<std::uint32_t>(info_.max_v_samp_factor) *
                          static_cast<std::uint32_t>(info_.min_DCT_scaled_size);
  const std::uint32_t skip = RoundDown(region.y, block_rows);
  rows_to_drop_ = region.y - skip;
  if (skip == 0) return {};
  return Guarded([&] { jpeg_skip_scanlines(&info_, skip); });
}

Status JpegDecoder::ReadOne(std::uint8_t* row) {
  JSAMPROW rows[1] = {is_cmyk() ? cmyk_.data() : row};
  HEADRACE_RETURN_IF_ERROR(Guarded([&] { jpeg_read_scanlines(&info_, rows, 1); }));
  if (is_cmyk()) ConvertCmyk(row);
  return {};
}

Status JpegDecoder::ReadRow(std::uint8_t* row) {
  for (; rows_to_drop_ > 0; --rows_to_drop_) HEADRACE_RETURN_IF_ERROR(ReadOne(row));
  return ReadOne(row);
}

Status JpegDecoder::Finish(std::uint8_t* row) {
  if (complete_) return {};
  while (info_.output_scanline < info_.output_height) HEADRACE_RETURN_IF_ERROR(ReadOne(row));
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
