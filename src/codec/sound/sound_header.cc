#include "codec/sound/sound_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// The first bytes of a file of `size` bytes.
struct Prefix {
  std::span<const std::byte> bytes;
  std::uint64_t size = 0;

  [[nodiscard]] std::string_view Text(std::uint64_t at, std::uint64_t count) const {
    return {reinterpret_cast<const char*>(bytes.data()) + at, count};
  }
  [[nodiscard]] std::uint64_t Little(std::uint64_t at, unsigned count) const {
    std::uint64_t value = 0;
    for (unsigned i = count; i > 0; --i) value = value << 8 | Byte(at + i - 1);
    return value;
  }
  [[nodiscard]] std::uint64_t Big(std::uint64_t at, unsigned count) const {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < count; ++i) value = value << 8 | Byte(at + i);
    return value;
  }
  // Whether [at, at + count) can be read: OutOfRange if it lies in the file, behind the prefix.
  [[nodiscard]] Status Check(std::string_view format, std::uint64_t at, std::uint64_t count) const {
    if (at <= bytes.size() && count <= bytes.size() - at) return {};
    if (at <= size && count <= size - at) {
      return OutOfRange("reading the header of a {} file of {}: it is longer than {}", format,
                        Counted(size, "byte"), Counted(bytes.size(), "byte"));
    }
    return DataLoss("decoding {} sound: truncated: {}, its header needs {}", format,
                    Counted(size, "byte"), at + count);
  }

 private:
  [[nodiscard]] std::uint64_t Byte(std::uint64_t at) const {
    return std::to_integer<std::uint64_t>(bytes[at]);
  }
};

constexpr std::string_view kWayOut =
    "; convert it to WAV or FLAC of 16 bits, or keep its bytes and decode them in a Python "
    "transform";

Status NotDecoded(std::string_view format, const std::string& what) {
  return DataLoss("decoding {} sound: {}{}", format, what, kWayOut);
}

Status CheckSize(const SoundInfo& info) {
  if (info.channels > kSoundChannelsMax) {
    return InvalidArgument("decoding sound of {}: at most {} are decoded; split the file",
                           Counted(info.channels, "channel"), kSoundChannelsMax);
  }
  const std::uint64_t frame_bytes = info.channels * sizeof(float);
  if (info.frames > kSoundBytesMax / frame_bytes) {
    return InvalidArgument(
        "decoding sound of {} and {}: at most {} of float32 numbers are decoded; cut the file",
        Counted(info.frames, "frame"), Counted(info.channels, "channel"),
        FormatBytes(kSoundBytesMax));
  }
  return {};
}

// --- WAV ----------------------------------------------------------------------------------------

constexpr std::uint64_t kWavChunkHeaderBytes = 8;  // name and length

// What the chunk "fmt " says of a frame.
Status ReadWavFormat(const Prefix& file, std::uint64_t at, std::uint64_t bytes,
                     SoundHeader& header) {
  constexpr std::uint64_t kPlainBytes = 16;
  constexpr std::uint64_t kExtensibleBytes = 40;
  constexpr std::uint64_t kPcm = 1;
  constexpr std::uint64_t kFloat = 3;
  constexpr std::uint64_t kExtensible = 0xFFFE;
  if (bytes < kPlainBytes) {
    return DataLoss("decoding WAV sound: byte {}: a format of {}, it needs {}", at,
                    Counted(bytes, "byte"), kPlainBytes);
  }
  HEADRACE_RETURN_IF_ERROR(file.Check("WAV", at, std::min(bytes, kExtensibleBytes)));
  std::uint64_t kind = file.Little(at, 2);
  header.info.channels = static_cast<std::uint32_t>(file.Little(at + 2, 2));
  header.info.rate = static_cast<std::uint32_t>(file.Little(at + 4, 4));
  const std::uint64_t frame_bytes = file.Little(at + 12, 2);
  header.bits = static_cast<std::uint32_t>(file.Little(at + 14, 2));
  if (kind == kExtensible && bytes >= kExtensibleBytes) {
    const std::uint64_t used_bits = file.Little(at + 18, 2);
    if (used_bits != 0 && used_bits != header.bits) {
      return NotDecoded("WAV", fmt::format("{} of {} bits are used, which is not decoded",
                                           used_bits, header.bits));
    }
    kind = file.Little(at + 24, 2);
  }
  header.is_float = kind == kFloat;
  const std::uint32_t bits = header.bits;
  const bool decoded = kind == kPcm     ? bits == 8 || bits == 16 || bits == 24 || bits == 32
                       : kind == kFloat ? bits == 32 || bits == 64
                                        : false;
  if (!decoded) {
    return NotDecoded(
        "WAV", fmt::format("format {} with {} is not decoded", kind, Counted(header.bits, "bit")));
  }
  if (header.info.channels == 0 || header.info.rate == 0 ||
      frame_bytes != std::uint64_t{header.info.channels} * bits / 8) {
    return DataLoss("decoding WAV sound: damaged: {} of {} bits at {} Hz in frames of {}",
                    Counted(header.info.channels, "channel"), bits, header.info.rate,
                    Counted(frame_bytes, "byte"));
  }
  return {};
}

// The sizes that programs write before they know how much follows: into a pipe they cannot correct
// them. 0 is one, too.
bool IsPlaceholder(std::uint64_t bytes) {
  constexpr std::uint64_t kOfSox = 0x7FFFF000;
  return bytes == kOfSox || bytes == 0x7FFFFFFF || bytes == 0xFFFFFFFF;
}

// Whether a chunk, as programs write them behind the frames, begins at `at`.
bool IsChunk(const Prefix& file, std::uint64_t at) {
  constexpr std::array<std::string_view, 12> kNames = {"LIST", "id3 ", "ID3 ", "fact",
                                                       "JUNK", "PAD ", "bext", "cue ",
                                                       "smpl", "inst", "iXML", "_PMX"};
  return std::find(kNames.begin(), kNames.end(), file.Text(at, 4)) != kNames.end();
}

// Of the frames that begin at `at`, by a header that says `bytes`: up to the end of the file where
// it does not know, as ffmpeg reads it.
Result<std::uint64_t> WavBodyBytes(const Prefix& file, std::uint64_t at, std::uint64_t bytes) {
  const std::uint64_t rest = file.size - at;
  if (IsPlaceholder(bytes) && bytes > rest) return rest;
  if (bytes != 0 || rest < kWavChunkHeaderBytes) return bytes;
  HEADRACE_RETURN_IF_ERROR(file.Check("WAV", at, kWavChunkHeaderBytes));
  return IsChunk(file, at) ? 0 : rest;
}

// Also RF64 and BW64, whose chunk "ds64" has sizes of 64 bits.
Result<SoundHeader> ReadWav(const Prefix& file) {
  constexpr std::uint64_t kIn64Bits = 0xFFFFFFFF;
  SoundHeader header;
  std::uint64_t bytes_64 = kIn64Bits;
  for (std::uint64_t at = 12;;) {
    HEADRACE_RETURN_IF_ERROR(file.Check("WAV", at, kWavChunkHeaderBytes));
    const std::string_view name = file.Text(at, 4);
    std::uint64_t bytes = file.Little(at + 4, 4);
    at += kWavChunkHeaderBytes;
    if (name == "fmt ") HEADRACE_RETURN_IF_ERROR(ReadWavFormat(file, at, bytes, header));
    if (name == "ds64") {
      HEADRACE_RETURN_IF_ERROR(file.Check("WAV", at, 16));
      bytes_64 = file.Little(at + 8, 8);
    }
    if (name == "data") {
      if (header.bits == 0) return DataLoss("decoding WAV sound: no format before its data");
      if (bytes == kIn64Bits) bytes = bytes_64;
      HEADRACE_ASSIGN_OR_RETURN(bytes, WavBodyBytes(file, at, bytes));
      header.body_begin = at;
      header.body_bytes = bytes;
      const std::uint64_t frame_bytes = std::uint64_t{header.info.channels} * header.bits / 8;
      header.info.frames = bytes / frame_bytes;
      HEADRACE_RETURN_IF_ERROR(CheckSize(header.info));
      if (bytes > file.size - at) {
        return DataLoss("decoding WAV sound: truncated: {} of {} of data", file.size - at,
                        Counted(bytes, "byte"));
      }
      header.body_bytes -= bytes % frame_bytes;
      return header;
    }
    at += bytes + (bytes & 1);
  }
}

// --- FLAC ---------------------------------------------------------------------------------------

// The first block of metadata, which must come first, and says it all; then others, which are
// skipped: texts and pictures.
Result<SoundHeader> ReadFlac(const Prefix& file) {
  constexpr std::uint64_t kBlockHeaderBytes = 4;
  constexpr std::uint64_t kStreamInfoBytes = 34;
  constexpr std::uint64_t kFirst = 4;  // behind "fLaC"
  constexpr std::uint64_t kLastBlock = 0x80;
  HEADRACE_RETURN_IF_ERROR(file.Check("FLAC", kFirst, kBlockHeaderBytes + kStreamInfoBytes));
  const std::uint64_t kind = file.Big(kFirst, 1) & ~kLastBlock;
  if (kind != 0 || file.Big(kFirst + 1, 3) != kStreamInfoBytes) {
    return DataLoss("decoding FLAC sound: damaged: it does not begin with its properties");
  }
  constexpr std::uint64_t kInfo = kFirst + kBlockHeaderBytes;
  SoundHeader header;
  header.is_flac = true;
  header.block_frames_max = static_cast<std::uint32_t>(file.Big(kInfo + 2, 2));
  // 20 bits of rate, 3 of channels - 1, 5 of bits - 1, 36 of frames.
  const std::uint64_t packed = file.Big(kInfo + 10, 8);
  header.info.rate = static_cast<std::uint32_t>(packed >> 44);
  header.info.channels = static_cast<std::uint32_t>(packed >> 41 & 7) + 1;
  header.bits = static_cast<std::uint32_t>(packed >> 36 & 31) + 1;
  header.info.frames = packed & ((std::uint64_t{1} << 36) - 1);
  if (header.bits != 8 && header.bits != 16 && header.bits != 24) {
    return NotDecoded("FLAC", Counted(header.bits, "bit") + " are not decoded");
  }
  if (header.info.frames == 0) {
    return NotDecoded("FLAC", "it was written to a pipe and does not say its length");
  }
  if (header.info.rate == 0) return DataLoss("decoding FLAC sound: damaged: a rate of 0 Hz");
  HEADRACE_RETURN_IF_ERROR(CheckSize(header.info));
  return header;
}

// Where the frames begin, which the properties do not depend on.
Status FindFlacBody(const Prefix& file, SoundHeader& header) {
  std::uint64_t at = 4;
  for (bool last = false; !last;) {
    HEADRACE_RETURN_IF_ERROR(file.Check("FLAC", at, 4));
    last = (file.Big(at, 1) & 0x80) != 0;
    at += 4 + file.Big(at + 1, 3);
  }
  HEADRACE_RETURN_IF_ERROR(file.Check("FLAC", at, 0));
  header.body_begin = at;
  header.body_bytes = file.size - at;
  return {};
}

}  // namespace

Result<SoundHeader> ReadSoundHeader(std::span<const std::byte> begin, std::uint64_t file_bytes) {
  const Prefix file{.bytes = begin, .size = std::max<std::uint64_t>(file_bytes, begin.size())};
  if (file.size == 0) return DataLoss("decoding sound of 0 bytes: it is empty");
  const std::string_view magic = file.Text(0, std::min<std::uint64_t>(begin.size(), 12));
  const std::string_view container = magic.substr(0, 4);
  const bool is_wav = container == "RIFF" || container == "RF64" || container == "BW64";
  if (is_wav && magic.ends_with("WAVE")) return ReadWav(file);
  if (magic.starts_with("fLaC")) {
    HEADRACE_ASSIGN_OR_RETURN(SoundHeader header, ReadFlac(file));
    if (begin.size() == file.size) HEADRACE_RETURN_IF_ERROR(FindFlacBody(file, header));
    return header;
  }
  return DataLoss("decoding sound of {}: neither WAV nor FLAC{}", Counted(file.size, "byte"),
                  kWayOut);
}

}  // namespace headrace
