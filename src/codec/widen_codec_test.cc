#include "codec/widen_codec.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace headrace {
namespace {

using Kind = NumberType::Kind;

template <typename From, typename To>
std::vector<To> WidenedBy(WidenBy by, Kind from, Kind to, const std::vector<From>& values) {
  const auto codec =
      MakeWidenCodec({from, sizeof(From)}, {to, sizeof(To)}, values.size(), by).value();
  EXPECT_FALSE(codec->is_copy());
  EXPECT_TRUE(codec->costs_a_copy());
  EXPECT_EQ(codec->RowBytes(1), values.size() * sizeof(To));
  // At an odd address, as stored bytes may lie.
  std::vector<std::byte> stored(1 + values.size() * sizeof(From));
  std::memcpy(stored.data() + 1, values.data(), values.size() * sizeof(From));
  std::vector<To> row(values.size());
  const Status status =
      codec->Decode(std::span(stored).subspan(1), {}, std::as_writable_bytes(std::span(row)));
  EXPECT_EQ(status.ToString(), "OK");
  return row;
}

// With all instructions; compares the bytes, as a NaN is not equal to itself.
template <typename From, typename To>
std::vector<To> Widened(Kind from, Kind to, const std::vector<From>& values) {
  std::vector<To> row = WidenedBy<From, To>(WidenBy::kBest, from, to, values);
  const std::vector<To> other = WidenedBy<From, To>(WidenBy::kAny, from, to, values);
  EXPECT_EQ(std::memcmp(row.data(), other.data(), row.size() * sizeof(To)), 0);
  return row;
}

template <typename From, typename To>
void ExpectSameValues(Kind from, Kind to) {
  std::vector<From> values = {0, 1, 100, std::numeric_limits<From>::max(),
                              std::numeric_limits<From>::min()};
  for (std::size_t i = 0; i < 40; ++i) values.push_back(static_cast<From>(i * 37));
  const std::vector<To> row = Widened<From, To>(from, to, values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(row[i], static_cast<To>(values[i]));
}

TEST(WidenCodecTest, IntegersKeepTheirValues) {
  ExpectSameValues<std::uint8_t, std::int64_t>(Kind::kUnsigned, Kind::kSigned);
  ExpectSameValues<std::uint16_t, std::int32_t>(Kind::kUnsigned, Kind::kSigned);
  ExpectSameValues<std::uint16_t, std::int64_t>(Kind::kUnsigned, Kind::kSigned);
  ExpectSameValues<std::uint32_t, std::int64_t>(Kind::kUnsigned, Kind::kSigned);
  ExpectSameValues<std::uint16_t, std::uint32_t>(Kind::kUnsigned, Kind::kUnsigned);
  ExpectSameValues<std::int8_t, std::int64_t>(Kind::kSigned, Kind::kSigned);
  ExpectSameValues<std::int16_t, std::int32_t>(Kind::kSigned, Kind::kSigned);
  ExpectSameValues<std::int32_t, std::int64_t>(Kind::kSigned, Kind::kSigned);
}

TEST(WidenCodecTest, FloatsKeepTheirValues) {
  const std::vector<float> values = {0.F, -1.5F, 3.4e38F, 1e-45F, INFINITY};
  const std::vector<double> row = Widened<float, double>(Kind::kFloat, Kind::kFloat, values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(row[i], values[i]);
}

TEST(WidenCodecTest, EveryHalfBecomesTheFloatOfItsValue) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const auto row = Widened<std::uint16_t, float>(Kind::kFloat, Kind::kFloat, halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const int exponent = (halves[i] >> 10) & 31;
    const int fraction = halves[i] & 1023;
    const bool is_negative = halves[i] >= 0x8000;
    EXPECT_EQ(std::signbit(row[i]), is_negative) << i;
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(row[i]) : std::isnan(row[i])) << i;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(row[i], is_negative ? -magnitude : magnitude) << i;
  }
}

TEST(WidenCodecTest, AnotherNumberOfBytesIsDataLossThatNamesBoth) {
  const auto codec = MakeWidenCodec({Kind::kUnsigned, 2}, {Kind::kSigned, 8}, 3).value();
  std::vector<std::byte> row(24);
  const std::vector<std::byte> stored(7);
  for (const std::size_t size : {0U, 4U, 7U}) {
    const Status status = codec->Decode(std::span(stored).first(size), {}, row);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(),
              "decoding array: got " + std::to_string(size) + " bytes, its shape and dtype need 6");
  }
}

TEST(WidenCodecTest, WhatLosesValuesIsRefused) {
  const auto refused = [](NumberType from, NumberType to) {
    return MakeWidenCodec(from, to, 1).status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({Kind::kUnsigned, 8}, {Kind::kSigned, 8}));
  EXPECT_TRUE(refused({Kind::kSigned, 2}, {Kind::kUnsigned, 4}));
  EXPECT_TRUE(refused({Kind::kSigned, 8}, {Kind::kSigned, 4}));
  EXPECT_TRUE(refused({Kind::kUnsigned, 2}, {Kind::kUnsigned, 2}));
  EXPECT_TRUE(refused({Kind::kUnsigned, 2}, {Kind::kFloat, 4}));
  EXPECT_EQ(
      MakeWidenCodec({Kind::kSigned, 1}, {Kind::kFloat, 4}, 1).status().message(),
      "widening signed of 1 byte to float of 4 bytes: no such conversion; choose a dtype that "
      "holds all values");
}

}  // namespace
}  // namespace headrace
