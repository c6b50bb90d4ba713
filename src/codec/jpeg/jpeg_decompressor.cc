#include "codec/jpeg/jpeg_decompressor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

// jerror.h must follow jpeglib.h.
#include <jerror.h>

#include "base/format/errors.h"

namespace headrace {
namespace {

// A legitimate image needs fewer. Each scan of a progressive image may cost a pass over all of it
// for a few bytes of input.
constexpr int kScansMax = 500;

constexpr JOCTET kEndMarker[2] = {0xFF, JPEG_EOI};

// Null where none is free. Never destroyed: threads may decode while the process ends.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of all threads
constinit std::array<std::atomic<JpegDecompressor*>, JpegDecompressor::kKept> free_decompressors{};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of all threads
constinit std::atomic<std::size_t> prepared_decompressors = 0;

// After a warning libjpeg continues with invented pixels, except for these warnings.
bool IsHarmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_BOGUS_ICC || warning == JWRN_JFIF_MAJOR;
}

JpegDecompressor* TakeFree() {
  for (std::atomic<JpegDecompressor*>& each : free_decompressors) {
    if (each.load(std::memory_order_relaxed) == nullptr) continue;
    JpegDecompressor* const taken = each.exchange(nullptr, std::memory_order_acquire);
    if (taken != nullptr) return taken;
  }
  return nullptr;
}

}  // namespace

// What libjpeg calls.
struct JpegDecompressor::Callbacks {
  [[noreturn]] static void Escape(j_common_ptr info) {
    auto* errors = reinterpret_cast<ErrorManager*>(info->err);
    errors->base.format_message(info, errors->text);
    std::longjmp(errors->escape, 1);  // NOLINT(cert-err52-cpp): see ErrorManager
  }

  static void OnMessage(j_common_ptr info, int level) {
    if (level < 0 && !IsHarmless(info->err->msg_code)) Escape(info);
  }

  static void PrintNothing(j_common_ptr) {}

  static void LimitScans(j_common_ptr info) {
    const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
    if (decompress->input_scan_number <= kScansMax) return;
    info->err->msg_code = JERR_NOTIMPL;
    Escape(info);
  }

  // The source of a JPEG in memory. After its end it returns an end marker, as often as asked, and
  // remembers that: the entropy decoder reads a few bytes ahead, so this alone is no error. If
  // pixels are missing, libjpeg then warns.
  static boolean GiveEnd(j_decompress_ptr info) {
    auto* source = reinterpret_cast<MemorySource*>(info->src);
    source->ended = true;
    source->base.next_input_byte = kEndMarker;
    source->base.bytes_in_buffer = sizeof(kEndMarker);
    return TRUE;
  }

  static void Skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    jpeg_source_mgr* source = info->src;
    const auto bytes = std::min(static_cast<std::size_t>(count), source->bytes_in_buffer);
    source->next_input_byte += bytes;
    source->bytes_in_buffer -= bytes;
  }

  static void DoNothing(j_decompress_ptr) {}
};

JpegDecompressor::JpegDecompressor() {
  info_.err = jpeg_std_error(&errors_.base);
  errors_.base.error_exit = Callbacks::Escape;
  errors_.base.emit_message = Callbacks::OnMessage;
  errors_.base.output_message = Callbacks::PrintNothing;
  source_.base.init_source = Callbacks::DoNothing;
  source_.base.fill_input_buffer = Callbacks::GiveEnd;
  source_.base.skip_input_data = Callbacks::Skip;
  source_.base.resync_to_restart = jpeg_resync_to_restart;
  source_.base.term_source = Callbacks::DoNothing;
  progress_.progress_monitor = Callbacks::LimitScans;
}

JpegDecompressor::~JpegDecompressor() {
  if (created_) jpeg_destroy_decompress(&info_);
}

Result<std::unique_ptr<JpegDecompressor>> JpegDecompressor::Make() {
  std::unique_ptr<JpegDecompressor> made(new JpegDecompressor);
  if (!made->Runs([&] { jpeg_create_decompress(&made->info_); })) {
    return ResourceExhausted("making a JPEG decoder: the system has no memory: {}",
                             made->error_text());
  }
  made->created_ = true;
  made->memory_.Attach(&made->info_);
  made->info_.src = &made->source_.base;
  made->info_.progress = &made->progress_;
  return made;
}

Result<JpegDecompressor::Taken> JpegDecompressor::Take(std::span<const std::byte> encoded) {
  Taken taken(TakeFree());
  if (taken == nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<JpegDecompressor> made, Make());
    taken.reset(made.release());
  }
  taken->source_.base.next_input_byte = reinterpret_cast<const JOCTET*>(encoded.data());
  taken->source_.base.bytes_in_buffer = encoded.size();
  taken->source_.ended = false;
  return taken;
}

bool JpegDecompressor::Keep(JpegDecompressor* free) {
  return std::ranges::any_of(free_decompressors, [free](std::atomic<JpegDecompressor*>& each) {
    JpegDecompressor* none = nullptr;
    return each.load(std::memory_order_relaxed) == nullptr &&
           each.compare_exchange_strong(none, free, std::memory_order_release,
                                        std::memory_order_relaxed);
  });
}

Status JpegDecompressor::Prepare(std::size_t count) {
  count = std::min(count, kKept);
  for (; prepared_decompressors < count; ++prepared_decompressors) {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<JpegDecompressor> made, Make());
    const Taken kept(made.release());  // given back at once
  }
  return {};
}

void JpegDecompressor::GiveBack::operator()(JpegDecompressor* taken) const {
  taken->Reset();
  if (!Keep(taken)) delete taken;
}

void JpegDecompressor::Reset() {
  jpeg_abort_decompress(&info_);
  memory_.Clear(&info_);
  source_.base.next_input_byte = nullptr;
  source_.base.bytes_in_buffer = 0;
}

}  // namespace headrace
