#include "ipc/wire.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(WireTest, WhatWasPutIsTakenInOrder) {
  WireWriter writer;
  writer.PutU8(200);
  writer.PutU32(4'000'000'000);
  writer.PutU64(~std::uint64_t{1});
  writer.PutI64(-5);
  writer.PutF64(-0.1);
  writer.PutBool(true);
  writer.PutString("data set");
  writer.PutString("");
  writer.PutVector(std::vector<std::uint32_t>{7, 8}, [](WireWriter& to, auto v) { to.PutU32(v); });
  writer.PutStatus(Status(StatusCode::kNotFound, "no such object"));
  writer.PutStatus(Status());
  WireReader reader("a message", writer.bytes());
  EXPECT_EQ(reader.TakeU8(), 200);
  EXPECT_EQ(reader.TakeU32(), 4'000'000'000);
  EXPECT_EQ(reader.TakeU64(), ~std::uint64_t{1});
  EXPECT_EQ(reader.TakeI64(), -5);
  EXPECT_EQ(reader.TakeF64(), -0.1);
  EXPECT_TRUE(reader.TakeBool());
  EXPECT_EQ(reader.TakeString(8), "data set");
  EXPECT_EQ(reader.TakeString(0), "");
  EXPECT_THAT(reader.TakeVector(2, 4, [](WireReader& from) { return from.TakeU32(); }),
              ElementsAre(7, 8));
  Status status;
  reader.TakeStatus(status, 100);
  EXPECT_EQ(status.ToString(), "NotFound: no such object");
  reader.TakeStatus(status, 100);
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(reader.Finish().ok());
}

// Processes built by different compilers, or package versions, must agree.
TEST(WireTest, TheFormatIsFrozen) {
  WireWriter writer;
  writer.PutU32(0x01020304);
  writer.PutString("ab");
  writer.PutI64(-2);
  std::vector<int> bytes;
  for (const std::byte byte : writer.bytes()) bytes.push_back(std::to_integer<int>(byte));
  EXPECT_THAT(
      bytes, ElementsAre(4, 3, 2, 1, 2, 0, 0, 0, 'a', 'b', 254, 255, 255, 255, 255, 255, 255, 255));
}

TEST(WireTest, EveryCutIsFoundAndReadsAsNothing) {
  WireWriter writer;
  writer.PutString("abc");
  writer.PutU64(5);
  for (std::size_t cut = 0; cut < writer.bytes().size(); ++cut) {
    WireReader reader("a batch", writer.bytes().first(cut));
    const std::string text = reader.TakeString(10);
    EXPECT_EQ(reader.TakeU64(), 0);
    EXPECT_EQ(text, cut < 7 ? "" : "abc");
    const Status status = reader.Finish();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << cut;
  }
}

TEST(WireTest, TheFirstMistakeIsKeptAndNamed) {
  WireWriter writer;
  writer.PutU32(9);
  writer.PutU8(2);
  WireReader reader("a batch", writer.bytes());
  EXPECT_EQ(reader.TakeU32(8), 0);
  EXPECT_FALSE(reader.ok());
  EXPECT_FALSE(reader.TakeBool());
  reader.Refuse("something else");
  EXPECT_EQ(reader.Finish().message(),
            "reading a batch, at byte 4 of 5: a number of 9, must be at most 8");
}

TEST(WireTest, WhatIsLeftOverIsAMistake) {
  WireWriter writer;
  writer.PutU8(0);
  writer.PutU8(0);
  WireReader reader("a batch", writer.bytes());
  (void)reader.TakeU8();
  EXPECT_THAT(reader.Finish().message(), HasSubstr("1 bytes after the last value"));
}

TEST(WireTest, ABoolOfTwoIsAMistake) {
  const std::array<std::byte, 1> two = {std::byte{2}};
  WireReader reader("a batch", two);
  EXPECT_FALSE(reader.TakeBool());
  EXPECT_THAT(reader.Finish().message(), HasSubstr("a boolean of 2"));
}

// Otherwise four bytes could request memory for 2^32 elements.
TEST(WireTest, ACountThatCanNotFitIsAMistakeBeforeMemoryIsAskedFor) {
  WireWriter writer;
  writer.PutU32(3);
  writer.PutU64(0);
  WireReader fits("a batch", writer.bytes());
  EXPECT_EQ(fits.TakeCount(3, 2), 3);
  WireReader reader("a batch", writer.bytes());
  EXPECT_EQ(reader.TakeCount(3, 4), 0);
  EXPECT_THAT(reader.Finish().message(), HasSubstr("a count of 3 of 4 bytes or more, 8 bytes"));
  WireReader bounded("a batch", writer.bytes());
  EXPECT_EQ(bounded.TakeCount(2, 0), 0);
  EXPECT_THAT(bounded.Finish().message(), HasSubstr("a count of 3, must be at most 2"));
}

TEST(WireTest, AStringBeyondItsBoundIsAMistake) {
  WireWriter writer;
  writer.PutString("abcd");
  WireReader reader("a batch", writer.bytes());
  EXPECT_EQ(reader.TakeString(3), "");
  EXPECT_EQ(reader.Finish().code(), StatusCode::kDataLoss);
}

TEST(WireTest, AStatusOfNoCodeIsAMistake) {
  WireWriter writer;
  writer.PutU8(2);
  writer.PutString("?");
  WireReader reader("an answer", writer.bytes());
  Status status(StatusCode::kInternal, "before");
  reader.TakeStatus(status, 10);
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(reader.Finish().message(), HasSubstr("a status of code 2"));
}

}  // namespace
}  // namespace headrace
