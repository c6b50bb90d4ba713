#pragma once

// Sounds for tests: generated, encoded and decoded with plain calls of libsndfile.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sndfile.h>

namespace headrace::test {

struct Sound {
  std::uint32_t channels = 1;
  std::uint32_t rate = 16000;
  std::vector<float> numbers;  // frame after frame

  friend bool operator==(const Sound&, const Sound&) = default;
};

// Tones and noise, another tone in each channel: a wrong number shows.
Sound MakeTones(std::uint64_t frames, std::uint32_t channels = 1, std::uint32_t rate = 16000);

// Formats of a file and of its numbers.
inline constexpr int kWav16 = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
inline constexpr int kFlac16 = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;

// `format`: SF_FORMAT_* of the file and of its numbers. `title`: a text beside the frames.
std::vector<std::byte> EncodeSound(const Sound& sound, int format, bool title = false);
Sound DecodeSoundPlainly(std::span<const std::byte> encoded);

// All that are decoded: WAV, extensible WAV and FLAC.
std::vector<int> SoundFormats();

}  // namespace headrace::test
