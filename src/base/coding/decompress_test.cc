#include "base/coding/decompress.h"

#include <array>
#include <string>
#include <vector>

#include "base/coding/testing/encoded.h"
#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr std::array kCodings = {Coding::kStored,  Coding::kZstd,   Coding::kZlib,
                                 Coding::kDeflate, Coding::kSnappy, Coding::kGzip};

std::string RandomText(std::uint64_t seed, std::size_t size) {
  Prng draw(seed, 0, RandomStream::kOrder);
  std::string text(size, '\0');
  for (char& each : text) each = static_cast<char>(draw.Below(256));
  return text;
}

// Half of it random, half of it repeats.
std::string SomeText(std::size_t size) {
  std::string text = RandomText(size, size / 2);
  while (text.size() < size) text += "a word and another, ";
  text.resize(size);
  return text;
}

Status Decoded(Coding coding, const std::string& encoded, std::string& decoded) {
  return Decompress(coding, std::as_bytes(std::span(encoded)),
                    std::as_writable_bytes(std::span(decoded)));
}

TEST(DecompressTest, GivesBackWhatWasCompressedInOneOrManyParts) {
  for (const Coding coding : kCodings) {
    for (const std::size_t size : {0U, 1U, 59U, 60U, 61U, 1000U, 250'000U}) {
      for (const std::size_t part : {std::size_t{1000}, std::size_t{1} << 30}) {
        const std::string bytes = SomeText(size);
        std::string decoded(size, '\0');
        const Status status = Decoded(coding, Encoded(coding, bytes, part), decoded);
        ASSERT_TRUE(status.ok()) << CodingName(coding) << ": " << status.ToString();
        ASSERT_EQ(decoded, bytes);
      }
    }
  }
}

TEST(DecompressTest, AnotherSizeThanTheIndexSaysIsDataLoss) {
  for (const Coding coding : kCodings) {
    const std::string encoded = Encoded(coding, SomeText(5000));
    for (const std::size_t size : {0U, 4999U, 5001U, 100'000U}) {
      std::string decoded(size, '\0');
      const Status status = Decoded(coding, encoded, decoded);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << CodingName(coding) << size;
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(size)));
    }
  }
}

// Bytes behind the room for them would be found by the sanitizer, and here.
TEST(DecompressTest, ABombWritesNoMoreThanItsRoom) {
  const std::string zeros(1 << 20, '\0');
  for (const Coding coding : kCodings) {
    const std::string encoded = Encoded(coding, zeros, zeros.size());
    std::string room(1000 + 64, 'x');
    const Status status = Decompress(coding, std::as_bytes(std::span(encoded)),
                                     std::as_writable_bytes(std::span(room)).first(1000));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << CodingName(coding);
    EXPECT_EQ(room.substr(1000), std::string(64, 'x')) << CodingName(coding);
  }
}

// Cut, and with bytes changed: an error, or the bytes where the change does not matter.
TEST(DecompressTest, DamageIsNeverMoreThanAnError) {
  const std::string bytes = SomeText(6000);
  Prng draw(1, 2, RandomStream::kOrder);
  for (const Coding coding : kCodings) {
    if (coding == Coding::kStored) continue;
    const std::string good = Encoded(coding, bytes);
    std::string decoded(bytes.size(), '\0');
    for (std::size_t size = 0; size < good.size(); size += 7) {
      EXPECT_EQ(Decoded(coding, good.substr(0, size), decoded).code(), StatusCode::kDataLoss)
          << CodingName(coding) << " cut to " << size;
    }
    for (int round = 0; round < 2000; ++round) {
      std::string bad = good;
      // Half of the changes where the blocks begin.
      const std::size_t end = round % 2 == 0 ? bad.size() : std::size_t{40};
      bad[draw.Below(end)] = static_cast<char>(draw.Below(256));
      const Status status = Decoded(coding, bad, decoded);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
      }
      // Those of zlib and gzip have a checksum, the others none (zstd if it is asked for).
      if (status.ok() && (coding == Coding::kGzip || coding == Coding::kZlib)) {
        EXPECT_EQ(decoded, bytes);
      }
    }
  }
}

// No byte of a success is what its room held before.
TEST(DecompressTest, DamageGivesTheSameInEveryRoom) {
  const std::string bytes = SomeText(1500);
  Prng draw(3, 4, RandomStream::kOrder);
  for (const Coding coding : kCodings) {
    const std::string good = Encoded(coding, bytes, 400);
    for (int round = 0; round < 3000; ++round) {
      std::string bad = good;
      if (round > 0) bad[draw.Below(bad.size())] = static_cast<char>(draw.Below(256));
      if (round % 9 == 8) bad.resize(draw.Below(bad.size()));
      std::string zeros(bytes.size(), '\0');
      std::string others(bytes.size(), '\xA5');
      const Status status = Decoded(coding, bad, zeros);
      ASSERT_EQ(status.ToString(), Decoded(coding, bad, others).ToString()) << CodingName(coding);
      ASSERT_TRUE(!status.ok() || zeros == others) << CodingName(coding) << ", round " << round;
    }
  }
}

TEST(DecompressTest, TheBeginningOfAStreamIsCheckedToItsEnd) {
  const std::string bytes = SomeText(9000);
  const std::string encoded = Encoded(Coding::kZlib, bytes);
  const auto begin = [](const std::string& from, std::string& to, std::uint64_t rest) {
    return DecompressBeginning(std::as_bytes(std::span(from)),
                               std::as_writable_bytes(std::span(to)), rest);
  };
  for (const std::size_t size : {1U, 100U, 4500U, 8999U, 9000U}) {
    std::string decoded(size, 'x');
    EXPECT_EQ(begin(encoded, decoded, 9000 - size).ToString(), "OK") << size;
    EXPECT_EQ(decoded, bytes.substr(0, size));
    EXPECT_TRUE(begin(encoded + "abc", decoded, 9000).ok());
    EXPECT_EQ(begin(encoded.substr(0, encoded.size() - 1), decoded, 9000).message(),
              "its end and its checksum are missing");
    std::string wrong = encoded;
    wrong.back() = static_cast<char>(wrong.back() ^ 1);
    EXPECT_THAT(std::string(begin(wrong, decoded, 9000).message()),
                HasSubstr("incorrect data check"));
    if (size == 9000) continue;
    EXPECT_THAT(std::string(begin(encoded, decoded, 8999 - size).message()),
                HasSubstr("bytes or more, expected " + std::to_string(size)));
  }
  std::string more(9001, 'x');
  EXPECT_EQ(begin(encoded, more, 9000).message(), "it ends after 9000 of 9001 decoded bytes");
}

TEST(DecompressTest, RandomBytesAreDataLossAndNothingElse) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string bytes = RandomText(seed, 1 + seed % 50);
    std::string decoded(100, '\0');
    for (const Coding coding : kCodings) {
      const Status status = Decoded(coding, bytes, decoded);
      if (!status.ok()) {
        ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
      }
    }
  }
}

TEST(DecompressTest, ZerosBehindTheLastMemberPadAFile) {
  const std::string bytes = RandomText(3, 500);
  const std::string encoded = Encoded(Coding::kGzip, bytes);
  std::string decoded(bytes.size(), '\0');
  EXPECT_TRUE(Decoded(Coding::kGzip, encoded + std::string(700, '\0'), decoded).ok());
  EXPECT_EQ(decoded, bytes);
  EXPECT_EQ(Decoded(Coding::kGzip, encoded + std::string(7, '\0') + "a", decoded).code(),
            StatusCode::kDataLoss);
}

TEST(DecompressTest, BytesBehindAStreamAreDataLoss) {
  const std::string bytes = SomeText(500);
  for (const Coding coding : {Coding::kZlib, Coding::kDeflate, Coding::kSnappy, Coding::kZstd}) {
    std::string decoded(bytes.size(), '\0');
    const std::string longer = Encoded(coding, bytes) + "abc";
    EXPECT_EQ(Decoded(coding, longer, decoded).code(), StatusCode::kDataLoss) << CodingName(coding);
  }
}

// The blocks of snappy's description: a literal, and copies that overlap themselves.
TEST(DecompressTest, SnappyBlocksOfEachKindOfTag) {
  const auto decode = [](const std::string& encoded, std::size_t size) {
    std::string decoded(size, '?');
    const Status status = Decoded(Coding::kSnappy, encoded, decoded);
    return status.ok() ? decoded : std::string(status.message());
  };
  using namespace std::string_literals;
  EXPECT_EQ(decode("\x03\x08"s + "abc", 3), "abc");
  EXPECT_EQ(decode("\x09\x08"s + "abc" + "\x09\x03"s, 9), "abcabcabc");        // 1 byte of offset
  EXPECT_EQ(decode("\x05\x00"s + "a" + "\x0e\x01\x00"s, 5), "aaaaa");          // 2 bytes
  EXPECT_EQ(decode("\x05\x00"s + "a" + "\x0f\x01\x00\x00\x00"s, 5), "aaaaa");  // 4 bytes
  EXPECT_EQ(decode("\x02\xf4\x01\x00"s + "ab", 2), "ab");  // a length in two bytes
  EXPECT_THAT(decode("\x05\x00"s + "a" + "\x0e\x00\x00"s, 5), HasSubstr("damaged at byte 6"));
  EXPECT_THAT(decode("\x05\x00"s + "a" + "\x0e\x02\x00"s, 5), HasSubstr("damaged at byte 6"));
  EXPECT_THAT(decode("\xff\xff\xff\xff\xff\xff"s, 5), HasSubstr("damaged at byte 5"));
  EXPECT_THAT(decode("\x06\x00"s + "a", 5), HasSubstr("it decodes to 6 bytes, the index says 5"));
}

TEST(DecompressTest, NothingDecodesToMoreThanTheMost) {
  const std::string zeros(8 << 20, '\0');
  for (const Coding coding : kCodings) {
    const std::string encoded = Encoded(coding, zeros, zeros.size());
    EXPECT_LE(zeros.size(), DecodedBytesMax(coding, encoded.size())) << CodingName(coding);
    EXPECT_EQ(DecodedBytesMax(coding, 0), 0U);
    EXPECT_LE(DecodedBytesMax(coding, ~std::uint64_t{0}), ~std::uint64_t{0});
  }
}

TEST(DecompressTest, TheMemoryOfADecoderIsBelowWhatItSays) {
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  EXPECT_LE(ZSTD_sizeof_DCtx(context), DecompressBytesMax(Coding::kZstd));
  ZSTD_freeDCtx(context);
}

TEST(DecompressTest, NamesAreThoseOfTheCodings) {
  for (const Coding coding : kCodings) {
    EXPECT_EQ(CodingOf(CodingName(coding)).value(), coding);
  }
  EXPECT_THAT(std::string(CodingOf("lz4").status().message()),
              HasSubstr("coding 'lz4': there are stored, zstd, zlib, deflate, snappy, gzip"));
}

TEST(UnshuffleTest, PutsTheBytesOfAnElementTogether) {
  const auto unshuffled = [](const std::string& from, std::uint64_t element_bytes) {
    std::string to(from.size(), '?');
    Unshuffle(std::as_bytes(std::span(from)), element_bytes, std::as_writable_bytes(std::span(to)));
    return to;
  };
  EXPECT_EQ(unshuffled("abcABC", 2), "aAbBcC");
  EXPECT_EQ(unshuffled("abABxy-", 3), "aAxbBy-");
  EXPECT_EQ(unshuffled("abc", 1), "abc");
  EXPECT_EQ(unshuffled("abc", 8), "abc");
  EXPECT_EQ(unshuffled("", 4), "");
}

}  // namespace
}  // namespace headrace
