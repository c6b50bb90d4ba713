#include "codec/sound/sound_codec.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sndfile.h>

#include "base/prng.h"
#include "codec/sound/sound_header.h"
#include "codec/sound/test_sounds.h"

namespace headrace {
namespace {

using test::DecodeSoundPlainly;
using test::EncodeSound;
using test::kFlac16;
using test::kWav16;
using test::MakeTones;
using test::Sound;
using test::SoundFormats;
using testing::HasSubstr;

using Encoded = std::vector<std::byte>;

struct Decoded {
  Status status;
  std::vector<float> numbers;
};

// `bytes`: of the decoded sound, as an index says.
Decoded Decode(const SoundTransform& transform, const Encoded& encoded, std::uint64_t bytes,
               const SampleKey& key = {}) {
  const auto codec = MakeSoundCodec(transform).value();
  Decoded decoded;
  decoded.numbers.resize(codec->RowBytes(bytes) / sizeof(float), -7.0F);
  decoded.status = codec->Decode(encoded, key, std::as_writable_bytes(std::span(decoded.numbers)));
  return decoded;
}

Decoded DecodeAll(const Encoded& encoded) {
  const Result<SoundHeader> header = ReadSoundHeader(encoded, encoded.size());
  return Decode({}, encoded, header.ok() ? header.value().info.bytes() : 0);
}

TEST(SoundCodecTest, EveryFormatIsWhatLibsndfileDecodes) {
  for (const int format : SoundFormats()) {
    for (const std::uint32_t channels : {1U, 2U, 6U}) {
      for (const std::uint64_t frames : {1U, 4095U, 9001U}) {
        for (const bool title : {false, true}) {
          const Encoded encoded = EncodeSound(MakeTones(frames, channels), format, title);
          const Decoded decoded = DecodeAll(encoded);
          ASSERT_EQ(decoded.status.ToString(), "OK") << format;
          ASSERT_EQ(decoded.numbers, DecodeSoundPlainly(encoded).numbers) << format;
        }
      }
    }
  }
}

TEST(SoundCodecTest, NumbersAreThoseEncoded) {
  const Sound sound = MakeTones(3000, 2);
  for (const auto& [format, step] : {std::pair{SF_FORMAT_WAV | SF_FORMAT_FLOAT, 0.0},
                                     {SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 0x1p-6},
                                     {kWav16, 0x1p-14},
                                     {SF_FORMAT_WAV | SF_FORMAT_PCM_24, 0x1p-22},
                                     {kFlac16, 0x1p-14},
                                     {SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 0x1p-22}}) {
    const Decoded decoded = DecodeAll(EncodeSound(sound, format));
    ASSERT_EQ(decoded.numbers.size(), sound.numbers.size());
    for (std::size_t i = 0; i < sound.numbers.size(); ++i) {
      ASSERT_NEAR(decoded.numbers[i], sound.numbers[i], step) << format << " at " << i;
    }
  }
}

TEST(SoundCodecTest, AFixedLengthCutsTheEndOrAddsZeros) {
  const Encoded encoded = EncodeSound(MakeTones(100, 2), kFlac16);
  const std::vector<float> all = DecodeSoundPlainly(encoded).numbers;
  for (const std::uint64_t frames : {1U, 99U, 100U, 101U, 7000U}) {
    const Decoded decoded = Decode({.frames = frames, .channels = 2}, encoded, 0);
    ASSERT_EQ(decoded.status.ToString(), "OK");
    std::vector<float> expected = all;
    expected.resize(frames * 2, 0.0F);
    EXPECT_EQ(decoded.numbers, expected) << frames;
  }
}

TEST(SoundCodecTest, ARandomCutIsThatOfItsKey) {
  constexpr std::uint64_t kFrames = 20000;
  for (const int format : {kWav16, kFlac16}) {
    const Encoded encoded = EncodeSound(MakeTones(kFrames, 3), format);
    const std::vector<float> all = DecodeSoundPlainly(encoded).numbers;
    for (const std::uint64_t length : {std::uint64_t{10}, kFrames - 1, kFrames, kFrames + 5}) {
      for (std::uint64_t sample = 0; sample < 20; ++sample) {
        const SampleKey key{.seed = 4, .epoch = sample % 3, .sample = SampleId{sample}};
        const Decoded decoded =
            Decode({.frames = length, .random_begin = true, .channels = 3}, encoded, 0, key);
        ASSERT_EQ(decoded.status.ToString(), "OK");
        Prng prng(key.seed, key.epoch, RandomStream::kAugment, sample);
        const std::uint64_t begin = length < kFrames ? prng.Below(kFrames - length + 1) : 0;
        std::vector<float> expected(
            all.begin() + static_cast<std::ptrdiff_t>(begin * 3),
            all.begin() + static_cast<std::ptrdiff_t>(std::min(kFrames, begin + length) * 3));
        expected.resize(length * 3, 0.0F);
        ASSERT_EQ(decoded.numbers, expected);
      }
    }
  }
}

TEST(SoundCodecTest, ASoundOfNoFramesIsSilence) {
  Encoded wav = EncodeSound(MakeTones(1), kWav16);
  std::fill_n(wav.begin() + 40, 4, std::byte{0});
  EXPECT_EQ(DecodeAll(wav).status.ToString(), "OK");
  EXPECT_EQ(Decode({.frames = 3, .channels = 1}, wav, 0).numbers, (std::vector<float>{0, 0, 0}));
}

TEST(SoundCodecTest, ASoundUnlikeItsFieldIsRefusedByName) {
  const Encoded encoded = EncodeSound(MakeTones(100, 2, 8000), kWav16);
  const auto message = [&](const SoundTransform& transform, std::uint64_t bytes) {
    const Status status = Decode(transform, encoded, bytes).status;
    return std::string(status.ToString());
  };
  EXPECT_THAT(message({.frames = 5, .channels = 1}, 0),
              HasSubstr("InvalidArgument: decoding sound of 2 channels: the field has 1; write"));
  EXPECT_THAT(message({.frames = 5, .channels = 2, .rate = 16000}, 0),
              HasSubstr("decoding sound of 8000 Hz: the field has 16000 Hz, and headrace does not "
                        "resample; resample the files"));
  EXPECT_EQ(
      message({}, 796),
      "DataLoss: decoding sound of 100 frames and 2 channels: 800 bytes of float32, the index "
      "says 796");
}

TEST(SoundCodecTest, ATransformThatCannotBeIsRefusedByName) {
  const auto message = [](const SoundTransform& transform) {
    return std::string(MakeSoundCodec(transform).status().message());
  };
  EXPECT_THAT(message({.frames = 0, .channels = 1}), HasSubstr("frames: got 0, must be in [1, "));
  EXPECT_THAT(message({.frames = 1U << 30, .channels = 1}), HasSubstr("must be in [1, 268435456]"));
  EXPECT_THAT(message({.frames = 5}), HasSubstr("channels: got 0, rows of equal length need"));
  EXPECT_THAT(message({.channels = 65}), HasSubstr("channels: got 65, must be at most 64"));
  EXPECT_THAT(message({.random_begin = true}), HasSubstr("nothing is cut without a length"));
}

TEST(SoundCodecTest, ADecodeThatMayNotHaveItsMemoryIsRefusedBeforeItBegins) {
  const Encoded encoded = EncodeSound(MakeTones(100), kFlac16);
  const auto codec = MakeSoundCodec({.frames = 100, .channels = 1}).value();
  std::vector<float> row(100);
  const auto bytes = std::as_writable_bytes(std::span(row));
  ScratchLimit limit{.bytes_max = 1000};
  EXPECT_EQ(codec->DecodeWithin(encoded, {}, bytes, limit).code(), StatusCode::kResourceExhausted);
  EXPECT_LE(limit.bytes_needed, codec->ScratchBytesMax());
  limit = {.bytes_max = limit.bytes_needed};
  EXPECT_EQ(codec->DecodeWithin(encoded, {}, bytes, limit).ToString(), "OK");
}

TEST(SoundCodecTest, AWrongByteOfAFlacFrameIsDataLoss) {
  const Encoded whole = EncodeSound(MakeTones(20000), kFlac16);
  const std::size_t begin = ReadSoundHeader(whole, whole.size()).value().body_begin;
  for (std::size_t part = 0; part < 24; ++part) {
    Encoded wrong = whole;
    wrong[begin + (whole.size() - begin) * part / 24] ^= std::byte{0x10};
    EXPECT_EQ(DecodeAll(wrong).status.code(), StatusCode::kDataLoss) << part;
  }
}

TEST(SoundCodecTest, ATruncatedFlacIsDataLoss) {
  const Encoded whole = EncodeSound(MakeTones(20000, 2), kFlac16);
  for (std::size_t sixteenth = 0; sixteenth < 16; ++sixteenth) {
    Encoded cut = whole;
    cut.resize(cut.size() * sixteenth / 16);
    EXPECT_EQ(DecodeAll(cut).status.code(), StatusCode::kDataLoss) << sixteenth;
  }
}

TEST(SoundCodecTest, FlippedBytesNeverDoMoreThanAnError) {
  Prng prng(20261124, 0, RandomStream::kAugment, 0);
  std::vector<Encoded> sounds;
  for (const int format : SoundFormats()) sounds.push_back(EncodeSound(MakeTones(700, 2), format));
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    Encoded damaged = sounds[prng.Below(sounds.size())];
    for (std::uint64_t flips = 1 + prng.Below(6); flips > 0; --flips) {
      const std::uint64_t most = prng.Below(2) == 0 ? 64 : damaged.size();
      damaged[prng.Below(most)] ^= static_cast<std::byte>(1U << prng.Below(8));
    }
    const SoundTransform transform{.frames = 600, .random_begin = true, .channels = 2};
    const SampleKey key{.sample = SampleId{static_cast<std::uint64_t>(i)}};
    const Decoded first = Decode(transform, damaged, 0, key);
    const Decoded again = Decode(transform, damaged, 0, key);
    ASSERT_EQ(first.status.ToString(), again.status.ToString());
    if (first.status.ok()) {
      ASSERT_EQ(std::memcmp(first.numbers.data(), again.numbers.data(),
                            first.numbers.size() * sizeof(float)),
                0);
      continue;
    }
    ++refused;
    ASSERT_THAT(first.status.code(),
                testing::AnyOf(StatusCode::kDataLoss, StatusCode::kInvalidArgument));
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace headrace
