#pragma once

// The frames of a WAV or FLAC file, by libsndfile.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/sound/sound_header.h"
#include "headrace/status.h"

namespace headrace {

// Decodes one file, from its first frame to its last. libsndfile sees its header and its frames,
// and none of its texts and pictures.
//
// Thread safety: thread-compatible.
// Ownership: the caller owns the encoded bytes, which must outlive it.
class SoundFile {
 public:
  // `header`: of all of `encoded`, by ReadSoundHeader().
  //
  // Errors: DataLoss  damaged
  static Result<std::unique_ptr<SoundFile>> Open(std::span<const std::byte> encoded,
                                                 const SoundHeader& header);

  ~SoundFile();
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  // Fills all of `to`, whole frames, with the next ones: numbers in [-1, 1), those of channel 0
  // first in a frame. Numbers of float WAV are as stored.
  //
  // Errors: DataLoss  damaged, or there are fewer frames
  Status Read(std::span<float> to);

  // Upper bound of the bytes that Open() and Read() allocate: an estimate, as libsndfile has no
  // function that tells it.
  static std::uint64_t BytesToDecode(const SoundHeader& header);

 private:
  struct Stream;

  explicit SoundFile(const SoundHeader& header);

  SoundHeader header_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace headrace
