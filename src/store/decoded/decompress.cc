#include "store/decoded/decompress.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/format/errors.h"

namespace headrace {
namespace {

constexpr std::array<std::pair<std::string_view, Coding>, 3> kCodings = {
    {{"stored", Coding::kStored}, {"zstd", Coding::kZstd}, {"gzip", Coding::kGzip}}};

constexpr int kGzipWindowBits = 16 + MAX_WBITS;  // gzip members, of the largest window

Status WrongSize(std::size_t decoded, std::size_t expected) {
  return DataLoss("it decodes to {} bytes or more, the index says {}", decoded, expected);
}

Status Truncated(std::size_t decoded, std::size_t expected) {
  return DataLoss("it ends after {} of {} decoded bytes", decoded, expected);
}

// Frame by frame, each in one call: then the output is the window, whatever its size.
Status DecompressZstd(std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  if (context == nullptr) return {StatusCode::kResourceExhausted, "out of memory"};
  std::size_t in = 0;
  std::size_t out = 0;
  while (in < encoded.size()) {
    const std::span<const std::byte> rest = encoded.subspan(in);
    const std::size_t frame = ZSTD_findFrameCompressedSize(rest.data(), rest.size());
    if (ZSTD_getErrorCode(frame) == ZSTD_error_srcSize_wrong) {
      return DataLoss("it ends inside the frame that begins at byte {}", in);
    }
    if (ZSTD_isError(frame) != 0) {
      return DataLoss("damaged at byte {}: {}", in, ZSTD_getErrorName(frame));
    }
    const std::span<std::byte> room = decoded.subspan(out);
    const std::size_t made =
        ZSTD_decompressDCtx(context.get(), room.data(), room.size(), rest.data(), frame);
    const ZSTD_ErrorCode error = ZSTD_getErrorCode(made);
    if (error == ZSTD_error_dstSize_tooSmall || error == ZSTD_error_dstBuffer_null) {
      return WrongSize(decoded.size() + 1, decoded.size());
    }
    if (ZSTD_isError(made) != 0) {
      return DataLoss("damaged in the frame that begins at byte {}: {}", in,
                      ZSTD_getErrorName(made));
    }
    in += frame;
    out += made;
  }
  return out == decoded.size() ? Status() : Truncated(out, decoded.size());
}

// zlib counts in 32 bits.
uInt Part(std::size_t size) {
  return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
}

Status DecompressGzip(std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipWindowBits) != Z_OK) {
    return {StatusCode::kResourceExhausted, "out of memory"};
  }
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ends(&stream, &inflateEnd);
  std::array<std::byte, 1> none{};  // where a byte too many would go
  std::size_t in = 0;
  std::size_t out = 0;
  bool ended = true;  // between members
  while (in < encoded.size()) {
    if (ended) {
      // Zeros that pad a file end it, as for the program gzip.
      const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
      if (in > 0 && std::ranges::all_of(encoded.subspan(in), is_zero)) break;
      inflateReset(&stream);
    }
    const std::span<std::byte> room = out < decoded.size() ? decoded.subspan(out) : std::span(none);
    // zlib does not write to its input.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(encoded.data() + in));
    stream.avail_in = Part(encoded.size() - in);
    stream.next_out = reinterpret_cast<Bytef*>(room.data());
    stream.avail_out = Part(room.size());
    const uInt in_before = stream.avail_in;
    const uInt out_before = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    in += in_before - stream.avail_in;
    const std::size_t made = out_before - stream.avail_out;
    if (out == decoded.size() && made != 0) return WrongSize(out + made, decoded.size());
    out += made;
    if (result == Z_MEM_ERROR) return {StatusCode::kResourceExhausted, "out of memory"};
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      return DataLoss("damaged at byte {}: {}", in,
                      stream.msg != nullptr ? stream.msg : "not gzip");
    }
    ended = result == Z_STREAM_END;
    if (result == Z_BUF_ERROR && in == encoded.size()) break;
  }
  return ended && out == decoded.size() ? Status() : Truncated(out, decoded.size());
}

}  // namespace

Result<Coding> CodingOf(std::string_view name) {
  for (const auto& [known, coding] : kCodings) {
    if (known == name) return coding;
  }
  return InvalidArgument("coding '{}': there are stored, zstd and gzip", name);
}

Status Decompress(Coding coding, std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  if (coding == Coding::kZstd) return DecompressZstd(encoded, decoded);
  if (coding == Coding::kGzip) return DecompressGzip(encoded, decoded);
  if (encoded.size() != decoded.size()) return WrongSize(encoded.size(), decoded.size());
  if (!encoded.empty()) std::memcpy(decoded.data(), encoded.data(), encoded.size());
  return {};
}

}  // namespace headrace
