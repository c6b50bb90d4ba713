#pragma once

#include <memory>

#include "codec/codec.h"
#include "headrace/part_options.h"
#include "headrace/status.h"

namespace headrace {

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
