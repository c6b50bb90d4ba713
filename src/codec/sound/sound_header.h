#pragma once

// sound/ decodes WAV and FLAC. This header: what a file says of itself, without decoding it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/status.h"

namespace headrace {

// A sound is decoded to frames: one float32 number a channel, at one moment.
struct SoundInfo {
  std::uint64_t frames = 0;
  std::uint32_t channels = 0;
  std::uint32_t rate = 0;  // frames a second

  // Of the decoded frames.
  [[nodiscard]] std::uint64_t bytes() const { return frames * channels * sizeof(float); }

  friend bool operator==(const SoundInfo&, const SoundInfo&) = default;
};

// How the frames of a file are stored.
struct SoundHeader {
  SoundInfo info;
  bool is_flac = false;          // else WAV
  bool is_float = false;         // WAV: else whole numbers
  std::uint32_t bits = 0;        // of a stored number
  std::uint64_t body_begin = 0;  // where the stored frames begin, in bytes of the file
  std::uint64_t body_bytes = 0;
  std::uint32_t block_frames_max = 0;  // FLAC: that are decoded together
};

inline constexpr std::uint32_t kSoundChannelsMax = 64;
// Of the decoded frames of one file: 46 minutes of stereo at 48 kHz.
inline constexpr std::uint64_t kSoundBytesMax = std::uint64_t{1} << 30;

// Reads the header of a file of `file_bytes` bytes from `begin`, its first bytes or all of them.
// The first bytes decide the format, not the file's name.
//
// WAV, RF64 and BW64: whole numbers of 8, 16, 24 and 32 bits, float of 32 and 64; frames go up to
// the end of a file that was written to a pipe and does not say its length. FLAC: 8, 16 and 24
// bits. Errors: DataLoss         neither WAV nor FLAC, truncated, damaged, or of a kind that is not
// decoded
//         InvalidArgument  more than kSoundChannelsMax channels, or kSoundBytesMax decoded
//         OutOfRange       the header is longer than `begin`: pass more
Result<SoundHeader> ReadSoundHeader(std::span<const std::byte> begin, std::uint64_t file_bytes);

}  // namespace headrace
