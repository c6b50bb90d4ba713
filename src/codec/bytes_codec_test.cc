#include "codec/bytes_codec.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr std::array<std::byte, 4> kStored = {std::byte{9}, std::byte{0}, std::byte{255},
                                              std::byte{7}};

TEST(BytesCodecTest, ARowIsTheStoredBytes) {
  const auto codec = MakeBytesCodec();
  ASSERT_EQ(codec->RowBytes(kStored.size()), kStored.size());
  std::array<std::byte, 4> row{};
  ASSERT_TRUE(codec->Decode(kStored, {}, row).ok());
  EXPECT_EQ(row, kStored);
}

TEST(BytesCodecTest, NoBytesAreAnEmptyRow) {
  const auto codec = MakeBytesCodec();
  EXPECT_EQ(codec->RowBytes(0), 0U);
  EXPECT_TRUE(codec->Decode({}, {}, {}).ok());
}

TEST(ArrayCodecTest, ARowIsTheStoredBytesWhateverTheirNumber) {
  const auto codec = MakeArrayCodec(4);
  EXPECT_EQ(codec->RowBytes(3), 4U);
  std::array<std::byte, 4> row{};
  ASSERT_TRUE(codec->Decode(kStored, {}, row).ok());
  EXPECT_EQ(row, kStored);
}

TEST(ArrayCodecTest, AnotherNumberOfBytesIsDataLossThatNamesBoth) {
  const auto codec = MakeArrayCodec(3);
  std::array<std::byte, 3> row{};
  for (const std::size_t size : {0U, 2U, 4U}) {
    const Status status = codec->Decode(std::span(kStored).first(size), {}, row);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(),
              "decoding array: got " + std::to_string(size) + " bytes, its shape and dtype need 3");
  }
}

TEST(BytesCodecDeathTest, ARowOfTheWrongSizeIsAProgrammersError) {
  std::array<std::byte, 3> row{};
  EXPECT_DEATH((void)MakeBytesCodec()->Decode(kStored, {}, row), "");
  EXPECT_DEATH((void)MakeArrayCodec(4)->Decode(kStored, {}, row), "");
}

}  // namespace
}  // namespace headrace
