#include "codec/sound/test_sounds.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <sndfile.h>

#include "base/check.h"
#include "base/prng.h"

namespace headrace::test {
namespace {

// A file in memory.
struct Memory {
  std::vector<std::byte> bytes;
  std::size_t at = 0;

  static Memory& Of(void* user) { return *static_cast<Memory*>(user); }
  static sf_count_t Size(void* user) { return static_cast<sf_count_t>(Of(user).bytes.size()); }
  static sf_count_t Tell(void* user) { return static_cast<sf_count_t>(Of(user).at); }
  static sf_count_t Seek(sf_count_t offset, int whence, void* user) {
    const sf_count_t base = whence == SEEK_CUR ? Tell(user) : whence == SEEK_END ? Size(user) : 0;
    Of(user).at = static_cast<std::size_t>(base + offset);
    return base + offset;
  }
  static sf_count_t Read(void* to, sf_count_t count, void* user) {
    Memory& memory = Of(user);
    const std::size_t rest = memory.bytes.size() - std::min(memory.at, memory.bytes.size());
    const std::size_t taken = std::min(rest, static_cast<std::size_t>(count));
    if (taken > 0) std::memcpy(to, memory.bytes.data() + memory.at, taken);
    memory.at += taken;
    return static_cast<sf_count_t>(taken);
  }
  static sf_count_t Write(const void* from, sf_count_t count, void* user) {
    Memory& memory = Of(user);
    const auto bytes = static_cast<std::size_t>(count);
    memory.bytes.resize(std::max(memory.bytes.size(), memory.at + bytes));
    if (bytes > 0) std::memcpy(memory.bytes.data() + memory.at, from, bytes);
    memory.at += bytes;
    return count;
  }
};

SF_VIRTUAL_IO Calls() {
  return {.get_filelen = Memory::Size,
          .seek = Memory::Seek,
          .read = Memory::Read,
          .write = Memory::Write,
          .tell = Memory::Tell};
}

}  // namespace

Sound MakeTones(std::uint64_t frames, std::uint32_t channels, std::uint32_t rate) {
  Sound sound{channels, rate, std::vector<float>(frames * channels)};
  Prng prng(5, 0, RandomStream::kAugment, 0);
  for (std::size_t i = 0; i < sound.numbers.size(); ++i) {
    const std::size_t frame = i / channels;
    const auto tone = static_cast<double>(frame * (1 + i % channels));
    sound.numbers[i] = static_cast<float>(0.7 * std::sin(tone / 9) + 0.2 * prng.Uniform() - 0.1);
  }
  return sound;
}

std::vector<std::byte> EncodeSound(const Sound& sound, int format, bool title) {
  Memory memory;
  SF_VIRTUAL_IO io = Calls();
  SF_INFO info{};
  info.channels = static_cast<int>(sound.channels);
  info.samplerate = static_cast<int>(sound.rate);
  info.format = format;
  SNDFILE* const file = sf_open_virtual(&io, SFM_WRITE, &info, &memory);
  HEADRACE_CHECK(file != nullptr);
  if (title) HEADRACE_CHECK(sf_set_string(file, SF_STR_TITLE, "a title") == 0);
  const auto count = static_cast<sf_count_t>(sound.numbers.size());
  HEADRACE_CHECK(sf_write_float(file, sound.numbers.data(), count) == count);
  HEADRACE_CHECK(sf_close(file) == 0);
  return memory.bytes;
}

Sound DecodeSoundPlainly(std::span<const std::byte> encoded) {
  Memory memory{{encoded.begin(), encoded.end()}};
  SF_VIRTUAL_IO io = Calls();
  SF_INFO info{};
  SNDFILE* const file = sf_open_virtual(&io, SFM_READ, &info, &memory);
  HEADRACE_CHECK(file != nullptr);
  const auto channels = static_cast<std::uint32_t>(info.channels);
  Sound sound{channels, static_cast<std::uint32_t>(info.samplerate),
              std::vector<float>(static_cast<std::size_t>(info.frames) * channels)};
  HEADRACE_CHECK(sf_readf_float(file, sound.numbers.data(), info.frames) == info.frames);
  HEADRACE_CHECK(sf_close(file) == 0);
  return sound;
}

std::vector<int> SoundFormats() {
  std::vector<int> formats;
  for (const int file : {SF_FORMAT_WAV, SF_FORMAT_WAVEX}) {
    for (const int numbers : {SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24,
                              SF_FORMAT_PCM_32, SF_FORMAT_FLOAT, SF_FORMAT_DOUBLE}) {
      formats.push_back(file | numbers);
    }
  }
  for (const int numbers : {SF_FORMAT_PCM_S8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24}) {
    formats.push_back(SF_FORMAT_FLAC | numbers);
  }
  return formats;
}

}  // namespace headrace::test
