#include "codec/sound/sound_header.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sndfile.h>

#include "codec/sound/test_sounds.h"

namespace headrace {
namespace {

using test::EncodeSound;
using test::kFlac16;
using test::kWav16;
using test::MakeTones;
using test::Sound;
using test::SoundFormats;
using testing::HasSubstr;

using Encoded = std::vector<std::byte>;

Result<SoundHeader> Read(const Encoded& encoded) {
  return ReadSoundHeader(encoded, encoded.size());
}

Encoded First(const Encoded& encoded, std::size_t bytes) {
  return {encoded.begin(), encoded.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

void ExpectNotDecoded(const Encoded& encoded, const std::string& says) {
  const Status status = Read(encoded).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; convert it to WAV or FLAC of 16 bits"));
}

TEST(SoundHeaderTest, EveryFormatSaysItsFramesChannelsAndRate) {
  for (const int format : SoundFormats()) {
    for (const std::uint32_t channels : {1U, 2U, 5U}) {
      const Encoded encoded = EncodeSound(MakeTones(1234, channels, 44100), format);
      const Result<SoundHeader> header = Read(encoded);
      ASSERT_TRUE(header.ok()) << format << header.status().ToString();
      ASSERT_EQ(header.value().info,
                (SoundInfo{.frames = 1234, .channels = channels, .rate = 44100}));
      ASSERT_EQ(header.value().info.bytes(), 1234U * channels * 4);
    }
  }
}

TEST(SoundHeaderTest, TheFirstBytesOfAFileSuffice) {
  for (const int format : SoundFormats()) {
    const Encoded encoded = EncodeSound(MakeTones(5000, 2), format);
    const Result<SoundHeader> header = ReadSoundHeader(First(encoded, 128), encoded.size());
    ASSERT_TRUE(header.ok()) << format << header.status().ToString();
    EXPECT_EQ(header.value().info, Read(encoded).value().info);
  }
}

TEST(SoundHeaderTest, AHeaderLongerThanWhatWasReadIsOutOfRange) {
  for (const int format : {kWav16, kFlac16}) {
    const Encoded encoded = EncodeSound(MakeTones(500), format);
    for (std::size_t bytes = 12; bytes < 40; ++bytes) {
      EXPECT_EQ(ReadSoundHeader(First(encoded, bytes), encoded.size()).status().code(),
                StatusCode::kOutOfRange)
          << bytes;
    }
  }
}

TEST(SoundHeaderTest, EveryTruncatedWavAndEveryTruncatedHeaderIsDataLoss) {
  const Encoded wav = EncodeSound(MakeTones(100), kWav16);
  for (std::size_t bytes = 0; bytes < wav.size(); ++bytes) {
    EXPECT_EQ(Read(First(wav, bytes)).status().code(), StatusCode::kDataLoss) << bytes;
  }
  const Encoded flac = EncodeSound(MakeTones(100), kFlac16);
  for (std::size_t bytes = 0; bytes < 42; ++bytes) {
    EXPECT_EQ(Read(First(flac, bytes)).status().code(), StatusCode::kDataLoss) << bytes;
  }
}

TEST(SoundHeaderTest, OtherFormatsAreRefusedByName) {
  ExpectNotDecoded(EncodeSound(MakeTones(100), SF_FORMAT_AIFF | SF_FORMAT_PCM_16),
                   "neither WAV nor FLAC");
  ExpectNotDecoded(EncodeSound(MakeTones(100), SF_FORMAT_WAV | SF_FORMAT_ULAW),
                   "WAV sound: format 7 with 8 bits is not decoded");
  ExpectNotDecoded(EncodeSound(MakeTones(100), SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM),
                   "WAV sound: format 17 with 4 bits is not decoded");
  EXPECT_EQ(Read({}).status().message(), "decoding sound of 0 bytes: it is empty");
}

TEST(SoundHeaderTest, AFlacWithoutARateOrWithOtherBitsIsNamed) {
  Encoded flac = EncodeSound(MakeTones(100), kFlac16);
  const auto keep_half = [&](std::size_t at, unsigned other) {
    flac[at] = (flac[at] & std::byte{0xF}) | static_cast<std::byte>(other << 4);
  };
  flac[18] = flac[19] = std::byte{0};
  keep_half(20, 0);
  EXPECT_EQ(Read(flac).status().message(), "decoding FLAC sound: damaged: a rate of 0 Hz");
  keep_half(21, 11);  // 12 bits
  ExpectNotDecoded(flac, "FLAC sound: 12 bits are not decoded; convert it to WAV or FLAC");
}

// The size of the frames, in a header of 44 bytes.
Encoded WithSize(Encoded wav, std::uint32_t bytes) {
  for (std::size_t i = 0; i < 4; ++i) wav[40 + i] = static_cast<std::byte>(bytes >> (8 * i) & 255);
  return wav;
}

TEST(SoundHeaderTest, AWavWrittenToAPipeGoesUpToItsEnd) {
  for (const std::uint32_t channels : {1U, 3U}) {
    const Encoded wav = EncodeSound(MakeTones(100, channels), kWav16);
    for (const std::uint32_t bytes : {0U, 0x7FFFF000U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
      Encoded piped = WithSize(wav, bytes);
      EXPECT_EQ(Read(piped).value().info, Read(wav).value().info) << bytes;
      EXPECT_EQ(ReadSoundHeader(First(piped, 60), piped.size()).value().info,
                Read(wav).value().info);
      piped.push_back(std::byte{1});  // of a frame that was cut off
      EXPECT_EQ(Read(piped).value().info, Read(wav).value().info) << bytes;
      EXPECT_EQ(Read(First(piped, 44)).value().info.frames, 0U);
    }
    for (const std::uint32_t bytes : {1000U, 0x7FFFF002U, 0xFFFFFFFEU}) {
      EXPECT_FALSE(Read(WithSize(wav, bytes)).ok()) << bytes;
    }
  }
}

TEST(SoundHeaderTest, AWavOfNoFramesBeforeATextHasNone) {
  Encoded wav = WithSize(First(EncodeSound(MakeTones(100), kWav16), 44), 0);
  for (const char byte : {'L', 'I', 'S', 'T', '\4', '\0', '\0', '\0', 'I', 'N', 'F', 'O'}) {
    wav.push_back(static_cast<std::byte>(byte));
  }
  EXPECT_EQ(Read(wav).value().info.frames, 0U);
  EXPECT_EQ(ReadSoundHeader(First(wav, 44), wav.size()).status().code(), StatusCode::kOutOfRange);
}

TEST(SoundHeaderTest, SizesOf64BitsAreRead) {
  for (const int numbers : {SF_FORMAT_PCM_16, SF_FORMAT_DOUBLE}) {
    const Sound sound = MakeTones(700, 2);
    Encoded wide = EncodeSound(sound, SF_FORMAT_RF64 | numbers);
    const Result<SoundHeader> header = Read(wide);
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header.value().info, (SoundInfo{.frames = 700, .channels = 2, .rate = sound.rate}));
    std::copy_n("BW64", 4, reinterpret_cast<char*>(wide.data()));
    EXPECT_EQ(Read(wide).value().info, header.value().info);
    EXPECT_EQ(Read(First(wide, wide.size() - 1)).status().code(), StatusCode::kDataLoss);
  }
}

TEST(SoundHeaderTest, AFlacWrittenToAPipeIsRefusedByName) {
  Encoded flac = EncodeSound(MakeTones(100), kFlac16);
  flac[21] &= std::byte{0xF0};
  std::fill_n(flac.begin() + 22, 4, std::byte{0});
  ExpectNotDecoded(flac, "it was written to a pipe and does not say its length");
}

TEST(SoundHeaderTest, MoreThanTheLimitsIsInvalidArgument) {
  Encoded flac = EncodeSound(MakeTones(100), kFlac16);
  flac[21] |= std::byte{0x0F};  // 2^36 - 1 frames
  std::fill_n(flac.begin() + 22, 4, std::byte{0xFF});
  const Status status = Read(flac).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "decoding sound of 68719476735 frames and 1 channel: at most 1.0 GiB of float32 numbers "
      "are decoded; cut the file");
  Encoded wav = EncodeSound(MakeTones(100, 65), kWav16);
  EXPECT_EQ(Read(wav).status().message(),
            "decoding sound of 65 channels: at most 64 are decoded; split the file");
}

TEST(SoundHeaderTest, ChunksBesideTheFramesAreSkipped) {
  const Encoded plain = EncodeSound(MakeTones(100), kWav16);
  Encoded more = First(plain, 12);
  for (const char byte : {'J', 'U', 'N', 'K', '\3', '\0', '\0', '\0', 'x', 'y', 'z', '\0'}) {
    more.push_back(static_cast<std::byte>(byte));
  }
  more.insert(more.end(), plain.begin() + 12, plain.end());
  EXPECT_EQ(Read(more).value().info, Read(plain).value().info);
  EXPECT_EQ(Read(more).value().body_begin, Read(plain).value().body_begin + 12);
}

}  // namespace
}  // namespace headrace
