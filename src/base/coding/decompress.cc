#include "base/coding/decompress.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/coding/snappy.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// The state of the decoders. Output goes straight to where it belongs, so there is no window of
// zstd.
constexpr std::uint64_t kZstdBytesMax = 128 * kKiB;
constexpr std::uint64_t kInflateBytesMax = 48 * kKiB;

// How deflate streams are wrapped, in the numbers of inflateInit2(). All have the largest window.
constexpr int kGzipWindowBits = 16 + MAX_WBITS;
constexpr int kZlibWindowBits = MAX_WBITS;
constexpr int kDeflateWindowBits = -MAX_WBITS;

Status WrongSize(std::size_t decoded, std::size_t expected) {
  return DataLoss("it decodes to {} bytes or more, the index says {}", decoded, expected);
}

Status Truncated(std::size_t decoded, std::size_t expected) {
  return DataLoss("it ends after {} of {} decoded bytes", decoded, expected);
}

Status NoMemory() { return {StatusCode::kResourceExhausted, "out of memory"}; }

Status DecompressZstd(std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  if (context == nullptr) return NoMemory();
  std::byte none{};  // zstd takes no null
  std::byte* const to = decoded.empty() ? &none : decoded.data();
  const std::size_t made =
      ZSTD_decompressDCtx(context.get(), to, decoded.size(), encoded.data(), encoded.size());
  if (ZSTD_isError(made) == 0) {
    return made == decoded.size() ? Status() : Truncated(made, decoded.size());
  }
  const ZSTD_ErrorCode code = ZSTD_getErrorCode(made);
  if (code == ZSTD_error_memory_allocation) return NoMemory();
  if (code == ZSTD_error_dstSize_tooSmall) return WrongSize(decoded.size() + 1, decoded.size());
  return DataLoss("damaged or truncated: {}", ZSTD_getErrorName(made));
}

// zlib counts in 32 bits.
uInt Part(std::size_t size) {
  return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
}

// What a call of inflate() said, read and wrote.
struct Inflated {
  int result = Z_OK;
  std::size_t read = 0;
  std::size_t written = 0;
};

Inflated InflateInto(z_stream& stream, std::span<const std::byte> encoded,
                     std::span<std::byte> room) {
  // zlib does not write to its input.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(encoded.data()));
  stream.avail_in = Part(encoded.size());
  stream.next_out = reinterpret_cast<Bytef*>(room.data());
  stream.avail_out = Part(room.size());
  const uInt in_before = stream.avail_in;
  const uInt out_before = stream.avail_out;
  const int result = inflate(&stream, Z_FINISH);  // In one go it needs no window of its own.
  return {.result = result,
          .read = in_before - stream.avail_in,
          .written = out_before - stream.avail_out};
}

// Whether it may go on, or has ended. `byte`: where it is in what is encoded.
Status CheckResult(int result, std::size_t byte, const z_stream& stream) {
  if (result == Z_MEM_ERROR) return NoMemory();
  if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return {};
  return DataLoss("damaged at byte {}: {}", byte,
                  stream.msg != nullptr ? stream.msg : "of another format");
}

Status Inflate(int window_bits, std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  z_stream stream = {};
  if (inflateInit2(&stream, window_bits) != Z_OK) return NoMemory();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ends(&stream, &inflateEnd);
  std::array<std::byte, 1> none{};  // where a byte too many would go
  std::size_t in = 0;
  std::size_t out = 0;
  bool ended = true;  // between members
  while (in < encoded.size()) {
    if (ended && in > 0) {
      if (window_bits != kGzipWindowBits) {
        return DataLoss("damaged at byte {}: bytes behind the end of the stream", in);
      }
      // Zeros that pad a file end it, as for the program gzip.
      const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
      if (std::ranges::all_of(encoded.subspan(in), is_zero)) break;
      inflateReset(&stream);
    }
    const std::span<std::byte> room = out < decoded.size() ? decoded.subspan(out) : std::span(none);
    const Inflated part = InflateInto(stream, encoded.subspan(in), room);
    in += part.read;
    if (out == decoded.size() && part.written != 0) {
      return WrongSize(out + part.written, decoded.size());
    }
    out += part.written;
    HEADRACE_RETURN_IF_ERROR(CheckResult(part.result, in, stream));
    ended = part.result == Z_STREAM_END;
    if (!ended && in == encoded.size()) break;
  }
  return ended && out == decoded.size() ? Status() : Truncated(out, decoded.size());
}

Status Copy(std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  if (encoded.size() != decoded.size()) return WrongSize(encoded.size(), decoded.size());
  if (!encoded.empty()) std::memcpy(decoded.data(), encoded.data(), encoded.size());
  return {};
}

}  // namespace

Status Decompress(Coding coding, std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  switch (coding) {
    case Coding::kStored:
      return Copy(encoded, decoded);
    case Coding::kZstd:
      return DecompressZstd(encoded, decoded);
    case Coding::kZlib:
      return Inflate(kZlibWindowBits, encoded, decoded);
    case Coding::kDeflate:
      return Inflate(kDeflateWindowBits, encoded, decoded);
    case Coding::kSnappy:
      return internal::DecompressSnappy(encoded, decoded);
    case Coding::kGzip:
      return Inflate(kGzipWindowBits, encoded, decoded);
  }
  HEADRACE_CHECK(false);
  return {};
}

Status DecompressBeginning(std::span<const std::byte> zlib, std::span<std::byte> decoded,
                           std::uint64_t rest_bytes_max) {
  z_stream stream = {};
  if (inflateInit2(&stream, kZlibWindowBits) != Z_OK) return NoMemory();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ends(&stream, &inflateEnd);
  std::array<std::byte, 4096> dropped{};
  std::size_t in = 0;
  std::uint64_t out = 0;
  for (;;) {
    const std::span<std::byte> room =
        out < decoded.size() ? decoded.subspan(out) : std::span<std::byte>(dropped);
    const Inflated part = InflateInto(stream, zlib.subspan(in), room);
    in += part.read;
    out += part.written;
    HEADRACE_RETURN_IF_ERROR(CheckResult(part.result, in, stream));
    if (out > decoded.size() && out - decoded.size() > rest_bytes_max) {
      return DataLoss("it decodes to {} bytes or more, expected {} and at most {} behind them", out,
                      decoded.size(), rest_bytes_max);
    }
    if (part.result == Z_STREAM_END) break;
    const bool moved = part.read != 0 || part.written != 0;
    if (!moved && out >= decoded.size()) return DataLoss("its end and its checksum are missing");
    if (!moved) return Truncated(out, decoded.size());
  }
  return out >= decoded.size() ? Status() : Truncated(out, decoded.size());
}

std::uint64_t DecompressBytesMax(Coding coding) {
  if (coding == Coding::kStored || coding == Coding::kSnappy) return 0;
  return coding == Coding::kZstd ? kZstdBytesMax : kInflateBytesMax;
}

void Unshuffle(std::span<const std::byte> from, std::uint64_t element_bytes,
               std::span<std::byte> to) {
  HEADRACE_CHECK(from.size() == to.size() && element_bytes > 0);
  const std::uint64_t count = from.size() / element_bytes;
  for (std::uint64_t byte = 0; byte < element_bytes; ++byte) {
    const std::byte* const column = from.data() + byte * count;
    for (std::uint64_t i = 0; i < count; ++i) to[i * element_bytes + byte] = column[i];
  }
  std::ranges::copy(from.subspan(count * element_bytes), to.subspan(count * element_bytes).begin());
}

}  // namespace headrace
