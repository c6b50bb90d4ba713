#include "engine/decode/field_decoding.h"

#include <array>
#include <memory>
#include <string>

#include "base/coding/decompress.h"
#include "base/coding/testing/encoded.h"
#include "base/prng.h"
#include "codec/bytes_codec.h"
#include "codec/scratch_memory.h"
#include "codec/widen_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr std::array kCodings = {Coding::kZstd, Coding::kZlib, Coding::kDeflate, Coding::kSnappy,
                                 Coding::kGzip};

std::string Text(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; text.size() < size; ++i) text += "line " + std::to_string(i) + ", ";
  text.resize(size);
  return text;
}

// The bytes of 16-bit numbers, all first ones, then all second ones.
std::string Shuffled(const std::string& text) {
  std::string out;
  for (const std::size_t first : {0U, 1U}) {
    for (std::size_t i = first; i < text.size(); i += 2) out.push_back(text[i]);
  }
  return out;
}

// A codec that reverses what it gets, and takes as much scratch memory.
class ReversingWithScratch final : public FieldCodec {
 public:
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t bytes) const override { return bytes; }
  [[nodiscard]] std::uint64_t ScratchBytesMax() const override { return 5000; }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = encoded.size();
    if (limit.bytes_needed > limit.bytes_max) {
      return Status(StatusCode::kResourceExhausted, "reversing takes more");
    }
    std::copy(encoded.rbegin(), encoded.rend(), row.begin());
    return Status();
  }
};

class FieldDecodingTest : public ::testing::Test {
 protected:
  // Decodes `stored`, of which the index says that it is `content_bytes` bytes.
  Result<std::string> Decode(const std::string& stored, std::uint64_t content_bytes,
                             char before_it = '?') {
    std::string row(field_.codec->RowBytes(content_bytes), before_it);
    ThreadScratchUse().bytes_peak = ThreadScratchUse().bytes;
    const std::size_t before = ThreadScratchUse().bytes;
    HEADRACE_RETURN_IF_ERROR(DecodeField(field_, {std::as_bytes(std::span(stored)), content_bytes},
                                         {}, std::as_writable_bytes(std::span(row)), limit_));
    EXPECT_LE(ThreadScratchUse().bytes_peak - before, limit_.bytes_needed);
    EXPECT_EQ(ThreadScratchUse().bytes, before);
    return row;
  }

  BatchField field_{.name = "text", .codec = MakeBytesCodec(), .ragged = true};
  ScratchLimit limit_;
};

TEST_F(FieldDecodingTest, BytesOfEachCodingAreDecompressedIntoTheRow) {
  for (const Coding coding : kCodings) {
    field_.coding = coding;
    for (const std::size_t size : {0U, 1U, 3000U, 200'000U}) {
      const Result<std::string> row = Decode(Encoded(coding, Text(size)), size);
      ASSERT_TRUE(row.ok()) << CodingName(coding) << ": " << row.status().ToString();
      EXPECT_EQ(row.value(), Text(size));
      EXPECT_EQ(limit_.bytes_needed, DecompressBytesMax(coding));
    }
  }
}

TEST_F(FieldDecodingTest, OtherCodecsGetWhatIsDecompressed) {
  field_.codec = std::make_shared<ReversingWithScratch>();
  for (const Coding coding : kCodings) {
    field_.coding = coding;
    const std::string text = Text(3000);
    EXPECT_EQ(Decode(Encoded(coding, text), 3000).value(), std::string(text.rbegin(), text.rend()));
    EXPECT_GE(limit_.bytes_needed, 6000U);
  }
}

TEST_F(FieldDecodingTest, ShuffledElementsAndHeadersAreUndone) {
  const std::string text = Text(3000);
  for (const bool shuffled : {false, true}) {
    for (const std::size_t header : {0U, 1U, 128U}) {
      for (const bool copies : {false, true}) {
        field_ = {.name = "x", .ragged = true, .coding = Coding::kZlib};
        field_.codec = copies ? MakeBytesCodec() : std::make_unique<ReversingWithScratch>();
        field_.shuffled_bytes = shuffled ? 2 : 1;
        field_.header_bytes = header;
        const std::string stored = std::string(header, 'h') + (shuffled ? Shuffled(text) : text);
        std::string row = Decode(Encoded(Coding::kZlib, stored), 3000).value();
        if (!copies) row = std::string(row.rbegin(), row.rend());
        EXPECT_EQ(row, text) << shuffled << header << copies;
      }
    }
  }
}

TEST_F(FieldDecodingTest, ArraysAreWidenedOnceTheyAreDecompressed) {
  const std::array<std::uint16_t, 3> stored = {1, 500, 65'535};
  const std::array<std::int64_t, 3> wide = {1, 500, 65'535};
  using Kind = NumberType::Kind;
  field_ = {.name = "x", .coding = Coding::kZstd, .shuffled_bytes = 2};
  field_.codec = MakeWidenCodec({Kind::kUnsigned, 2}, {Kind::kSigned, 8}, 3).value();
  const std::string bytes(reinterpret_cast<const char*>(stored.data()), sizeof(stored));
  const std::string row = Decode(Encoded(Coding::kZstd, Shuffled(bytes)), sizeof(stored)).value();
  EXPECT_EQ(row, std::string(reinterpret_cast<const char*>(wide.data()), sizeof(wide)));
}

TEST_F(FieldDecodingTest, AnotherSizeThanTheIndexSaysIsDataLoss) {
  for (const Coding coding : kCodings) {
    field_.coding = coding;
    for (const std::uint64_t size : {0U, 2999U, 3001U}) {
      const Status status = Decode(Encoded(coding, Text(3000)), size).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss);
      EXPECT_THAT(status.ToString(), HasSubstr(std::to_string(size)));
    }
  }
}

// Rows and scratch memory held other bytes before: none of them is in a row.
TEST_F(FieldDecodingTest, DamageGivesTheSameInEveryMemory) {
  const std::string text = Text(900);
  Prng draw(2, 9, RandomStream::kOrder);
  for (const Coding coding : kCodings) {
    for (const bool copies : {false, true}) {
      field_ = {.name = "x", .ragged = true, .coding = coding, .shuffled_bytes = 2};
      field_.codec = copies ? MakeBytesCodec() : std::make_unique<ReversingWithScratch>();
      field_.header_bytes = 7;
      const std::string good = Encoded(coding, "header " + Shuffled(text));
      for (int round = 0; round < 1000; ++round) {
        std::string bad = good;
        if (round > 0) bad[draw.Below(bad.size())] = static_cast<char>(draw.Below(256));
        ThreadScratchUse().fill = std::byte{0x5A};
        const Result<std::string> one = Decode(bad, text.size(), '\0');
        ThreadScratchUse().fill = std::byte{0xC3};
        const Result<std::string> other = Decode(bad, text.size(), '\xA5');
        ThreadScratchUse().fill.reset();
        ASSERT_EQ(one.status().ToString(), other.status().ToString()) << CodingName(coding);
        ASSERT_TRUE(!one.ok() || one.value() == other.value()) << CodingName(coding) << round;
        ASSERT_TRUE(round > 0 || one.ok());
      }
    }
  }
}

TEST_F(FieldDecodingTest, MoreMemoryThanTheLimitIsRefusedBeforeItIsTaken) {
  field_.codec = std::make_shared<ReversingWithScratch>();
  field_.coding = Coding::kGzip;
  const std::string stored = Encoded(Coding::kGzip, Text(3000));
  limit_.bytes_max = 3000;
  const Status first = Decode(stored, 3000).status();
  EXPECT_EQ(first.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(first.ToString(), HasSubstr("decompressing "));
  // Now what it said; and then what its codec needs beside.
  limit_.bytes_max = limit_.bytes_needed;
  if (Decode(stored, 3000).status().code() == StatusCode::kResourceExhausted) {
    limit_.bytes_max = limit_.bytes_needed;
  }
  EXPECT_TRUE(Decode(stored, 3000).ok());
}

TEST_F(FieldDecodingTest, TheMostThatAnySampleTakesIsKnown) {
  const FieldInfo text{.name = "text"};
  EXPECT_EQ(DecodeScratchBytesMax(field_, text), 0U);
  field_.coding = Coding::kZstd;
  EXPECT_EQ(DecodeScratchBytesMax(field_, text), DecompressBytesMax(Coding::kZstd));
  field_.codec = std::make_shared<ReversingWithScratch>();
  EXPECT_GT(DecodeScratchBytesMax(field_, text), std::uint64_t{1} << 40);
  const FieldInfo array{
      .name = "x", .kind = FieldKind::kArray, .dtype = DType::kUInt16, .shape = {100}};
  EXPECT_EQ(DecodeScratchBytesMax(field_, array), 200 + 5000 + DecompressBytesMax(Coding::kZstd));
}

}  // namespace
}  // namespace headrace
