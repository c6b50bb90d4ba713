#include "peer/grpc/sample_message.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "peer/grpc/proto/peers.pb.h"

namespace headrace {
namespace {

using peers::v1::SampleAnswer;
using peers::v1::SampleAnswers;

std::string TextOf(Pieces part) {
  std::string text(part.left(), '?');
  part.CopyTo(std::as_writable_bytes(std::span(text)));
  return text;
}

// `message` in pieces of `size` bytes, some of them empty.
std::vector<std::span<const std::byte>> Cut(const std::string& message, std::size_t size) {
  std::vector<std::span<const std::byte>> pieces;
  std::span<const std::byte> rest = std::as_bytes(std::span(message));
  while (!rest.empty()) {
    pieces.push_back(rest.first(std::min(size, rest.size())));
    rest = rest.subspan(pieces.back().size());
    pieces.emplace_back();
  }
  return pieces;
}

TEST(SampleMessageTest, WhatIsWrittenIsAMessageOfTheProtocol) {
  std::vector<std::byte> memory(5000);
  SampleAnswersWriter writer(memory);
  const auto add = [&](std::uint64_t number, std::uint64_t offset, const std::string& part,
                       bool is_last, std::uint64_t checksum) {
    std::ranges::copy(std::as_bytes(std::span(part)),
                      writer.Begin(number, offset, part.size(), is_last).begin());
    writer.End(checksum);
  };
  add(1, 0, "whole", true, 0x8877665544332211);
  add(300, 1ULL << 40, std::string(1000, 'x'), false, 77);
  writer.Begin(4, 0, 100, true);
  writer.Drop();
  writer.Refuse(~0ULL, 5, "it is not here");
  writer.Refuse(7, 14, std::string(2000, 'y'));
  SampleAnswers read;
  ASSERT_TRUE(read.ParseFromArray(memory.data(), static_cast<int>(writer.size())));
  ASSERT_EQ(read.answers_size(), 4);
  EXPECT_EQ(read.answers(0).number(), 1U);
  EXPECT_EQ(read.answers(0).part(), "whole");
  EXPECT_EQ(read.answers(0).checksum(), 0x8877665544332211U);
  EXPECT_EQ(read.answers(1).number(), 300U);
  EXPECT_EQ(read.answers(1).offset(), 1ULL << 40);
  EXPECT_EQ(read.answers(1).part(), std::string(1000, 'x'));
  EXPECT_EQ(read.answers(1).checksum(), 0U);
  EXPECT_EQ(read.answers(2).number(), ~0ULL);
  EXPECT_EQ(read.answers(2).code(), 5U);
  EXPECT_EQ(read.answers(2).reason(), "it is not here");
  EXPECT_EQ(read.answers(3).reason().size(), SampleAnswersWriter::kReasonBytesMax);
}

TEST(SampleMessageTest, AnAnswerTakesNoMoreRoomThanIsPromised) {
  const std::string part(1 << 21, 'x');
  std::vector<std::byte> memory(part.size() + SampleAnswersWriter::kAnswerBytesMax);
  SampleAnswersWriter writer(memory);
  writer.Begin(~0ULL, ~0ULL, part.size(), true);
  writer.End(~0ULL);
  EXPECT_LE(writer.size(), memory.size());
  std::vector<std::byte> refused(SampleAnswersWriter::kReasonBytesMax +
                                 SampleAnswersWriter::kAnswerBytesMax);
  SampleAnswersWriter refuses(refused);
  refuses.Refuse(~0ULL, ~0U, part);
  EXPECT_LE(refuses.size(), refused.size());
}

TEST(SampleMessageTest, AMessageIsReadFromPiecesOfAnySize) {
  SampleAnswers answers;
  for (std::uint64_t i = 0; i < 5; ++i) {
    SampleAnswer& answer = *answers.add_answers();
    answer.set_number(i << (i * 12));
    answer.set_offset(i * 1'000'000);
    answer.set_part(std::string(i * 50, static_cast<char>('a' + i)));
    answer.set_checksum(i * 0x0123456789abcdef);
    answer.set_code(static_cast<std::uint32_t>(i * 1000));
    answer.set_reason(std::string(i, 'r'));
  }
  const std::string message = answers.SerializeAsString();
  for (const std::size_t size : {1U, 2U, 3U, 7U, 64U, 10'000U}) {
    const auto pieces = Cut(message, size);
    const auto read = ReadSampleAnswers(pieces);
    ASSERT_TRUE(read.ok()) << read.status().message();
    ASSERT_EQ(read.value().size(), 5U);
    for (int i = 0; i < 5; ++i) {
      const SampleAnswer& expected = answers.answers(i);
      const ReceivedAnswer& got = read.value()[static_cast<std::size_t>(i)];
      EXPECT_EQ(got.number, expected.number());
      EXPECT_EQ(got.offset, expected.offset());
      EXPECT_EQ(TextOf(got.part), expected.part());
      EXPECT_EQ(got.checksum, expected.checksum());
      EXPECT_EQ(got.code, expected.code());
      EXPECT_EQ(got.reason, expected.reason());
    }
  }
}

TEST(SampleMessageTest, FieldsInAnyOrderAndUnknownOnesAreRead) {
  // Answers { 9: varint, part, 10: fixed32, 11: bytes, number }, and a field 2 of the message.
  const std::string answer = std::string("\x48\x05", 2) + "\x2a\x02hi" +
                             std::string("\x55\x00\x00\x00\x00", 5) + "\x5a\x01z" + "\x08\x07";
  const std::string message =
      std::string("\x0a") + static_cast<char>(answer.size()) + answer + std::string("\x10\x01", 2);
  const auto pieces = Cut(message, 3);
  const auto read = ReadSampleAnswers(pieces);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read.value().size(), 1U);
  EXPECT_EQ(read.value()[0].number, 7U);
  EXPECT_EQ(TextOf(read.value()[0].part), "hi");
}

TEST(SampleMessageTest, WhatIsNoMessageIsAnError) {
  for (const std::string& wrong :
       {std::string("\x0a"), std::string("\x0a\x05\x08"), std::string("\x0a\x02\x2a\x7f"),
        std::string("\x0b\x00", 2), std::string("\x00\x00", 2), std::string("\x0a\x01\x31"),
        std::string(11, '\xff'), std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")}) {
    const auto pieces = Cut(wrong, 2);
    EXPECT_EQ(ReadSampleAnswers(pieces).status().code(), StatusCode::kDataLoss);
  }
}

TEST(SampleMessageTest, AMessageOfTooManyAnswersIsAnError) {
  std::string message;
  for (std::size_t i = 0; i < kSampleAnswersMax; ++i) message += std::string("\x0a\x00", 2);
  const auto of = [](const std::string& text) { return ReadSampleAnswers(Cut(text, 100)); };
  EXPECT_TRUE(of(message).ok());
  EXPECT_FALSE(of(message + std::string("\x0a\x00", 2)).ok());
}

}  // namespace
}  // namespace headrace
