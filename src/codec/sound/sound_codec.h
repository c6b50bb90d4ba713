#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "codec/codec.h"

namespace headrace {

// How an encoded sound (WAV or FLAC) becomes a row of float32 numbers [frames, channels].
struct SoundTransform {
  // The frames of every row: longer sounds are cut, shorter ones are followed by zeros. Without it
  // a row has all frames.
  std::optional<std::uint64_t> frames;
  bool random_begin = false;  // cut at a random frame, of each epoch; else the first frames stay

  // What every sound must have; 0: whatever it has. Required with `frames`: channels.
  std::uint32_t channels = 0;
  std::uint32_t rate = 0;  // frames a second
};

// Makes the codec for encoded sounds. The first bytes decide the format, never a name. Rows must be
// aligned to 4 bytes.
//
// RowBytes() is 4 * frames * channels if these are fixed. Otherwise a row has the bytes of the
// decoded sound, and RowBytes() takes and returns their number: the index knows it.
//
// The begin of a random cut is Below(frames of the sound - frames + 1) of
// Prng(seed, epoch, kAugment, sample).
// Errors: InvalidArgument  an invalid transform: 0 frames, frames without channels, ...
Result<std::unique_ptr<FieldCodec>> MakeSoundCodec(const SoundTransform& transform);

}  // namespace headrace
