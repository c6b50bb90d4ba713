#include "codec/jpeg/jpeg_decompressor.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "codec/image/jpeg_decoder.h"
#include "codec/image/test_images.h"

namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): getenv() has no object
std::atomic<int> environment_reads = 0;  // by libjpeg
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): nor has libjpeg's allocator
std::atomic<bool> has_memory = true;

}  // namespace

// In place of the C library's, for libjpeg, too.
extern "C" char* getenv(const char* name) noexcept {
  if (std::strcmp(name, "JPEGMEM") == 0) ++environment_reads;
  static const auto real = reinterpret_cast<char* (*)(const char*)>(dlsym(RTLD_NEXT, "getenv"));
  return real(name);
}

// NOLINTNEXTLINE(readability-identifier-naming): libjpeg has named it
extern "C" void* jpeg_get_small(j_common_ptr info, std::size_t bytes) {
  static const auto real =
      reinterpret_cast<decltype(&jpeg_get_small)>(dlsym(RTLD_NEXT, "jpeg_get_small"));
  return has_memory ? real(info, bytes) : nullptr;
}

namespace headrace {
namespace {

using test::EncodeJpeg;
using test::MakeTexture;
using test::RgbImage;

constexpr std::uint64_t kDecompressorPixelsMax = 1 << 20;

// The pixels, or the error.
struct DecodedJpeg {
  std::vector<std::uint8_t> pixels;
  std::string error;

  friend bool operator==(const DecodedJpeg&, const DecodedJpeg&) = default;
};

DecodedJpeg DecodeJpeg(std::span<const std::byte> encoded) {
  Result<std::unique_ptr<ImageDecoder>> opened = OpenJpeg(encoded, kDecompressorPixelsMax);
  if (!opened.ok()) return {{}, opened.status().ToString()};
  ImageDecoder& decoder = *opened.value();
  const ImageSize size = decoder.size();
  DecodedJpeg decoded;
  Status status = decoder.Start({.width = size.width, .height = size.height});
  std::vector<std::uint8_t> row(kPixelBytes * decoder.row_pixels());
  for (std::uint32_t y = 0; status.ok() && y < size.height; ++y) {
    status = decoder.ReadRow(row.data());
    decoded.pixels.insert(decoded.pixels.end(), row.begin(), row.end());
  }
  if (status.ok()) status = decoder.Finish(row.data());
  if (!status.ok()) decoded.error = status.ToString();
  return decoded;
}

// All that are free, and a new one: the next is a new one, too.
std::vector<JpegDecompressor::Taken> TakeAll() {
  std::vector<JpegDecompressor::Taken> taken;
  const int before = environment_reads;
  while (environment_reads == before) {
    Result<JpegDecompressor::Taken> one = JpegDecompressor::Take({});
    EXPECT_TRUE(one.ok());
    taken.push_back(std::move(one).value());
  }
  return taken;
}

// With a new decompressor: all others are in use meanwhile.
DecodedJpeg DecodeWithNewOne(std::span<const std::byte> encoded) {
  const std::vector<JpegDecompressor::Taken> others = TakeAll();
  const int made = environment_reads;
  DecodedJpeg decoded = DecodeJpeg(encoded);
  EXPECT_EQ(environment_reads, made + 1);
  return decoded;
}

// Without its segments that begin with the marker FF `kind`.
std::vector<std::byte> WithoutSegments(const std::vector<std::byte>& encoded, unsigned kind) {
  std::vector<std::byte> left(encoded.begin(), encoded.begin() + 2);
  std::size_t at = 2;
  while (at + 4 <= encoded.size() && encoded[at] == std::byte{0xFF}) {
    const auto marker = std::to_integer<unsigned>(encoded[at + 1]);
    const std::size_t bytes = 2 + std::to_integer<std::size_t>(encoded[at + 2]) * 256 +
                              std::to_integer<std::size_t>(encoded[at + 3]);
    const auto begin = encoded.begin() + static_cast<std::ptrdiff_t>(at);
    if (marker != kind) left.insert(left.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
    at += bytes;
    if (marker == 0xDA) break;
  }
  left.insert(left.end(), encoded.begin() + static_cast<std::ptrdiff_t>(at), encoded.end());
  return left;
}

TEST(JpegDecompressorTest, ThreadsReadNoEnvironmentAfterPrepare) {
  constexpr std::size_t kThreads = 12;
  ASSERT_TRUE(JpegDecompressor::Prepare(kThreads).ok());
  const std::vector<std::byte> encoded = EncodeJpeg(MakeTexture(100, 60));
  const DecodedJpeg expected = DecodeJpeg(encoded);
  EXPECT_EQ(expected.error, "");
  const int before = environment_reads;
  ASSERT_GT(before, 0) << "libjpeg of this system reads no environment: the test shows nothing";
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) EXPECT_EQ(DecodeJpeg(encoded), expected);
    });
  }
  threads.clear();
  EXPECT_EQ(environment_reads, before);
}

TEST(JpegDecompressorTest, NoMemoryForADecompressorIsNoErrorOfTheImage) {
  const std::vector<JpegDecompressor::Taken> others = TakeAll();
  has_memory = false;
  const Result<JpegDecompressor::Taken> refused = JpegDecompressor::Take({});
  has_memory = true;
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(),
            "making a JPEG decoder: the system has no memory: Insufficient memory (case 0)");
}

TEST(JpegDecompressorTest, PrepareMakesUpToACountAndNoMore) {
  ASSERT_TRUE(JpegDecompressor::Prepare(20).ok());
  const int before = environment_reads;
  ASSERT_TRUE(JpegDecompressor::Prepare(20).ok());
  ASSERT_TRUE(JpegDecompressor::Prepare(3).ok());
  EXPECT_EQ(environment_reads, before);
  ASSERT_TRUE(JpegDecompressor::Prepare(22).ok());
  EXPECT_EQ(environment_reads, before + 2);
}

// An image may rely on tables of the one before it, if a decoder is asked for a stream of them.
// Here each image is alone: what it gives must not depend on what was decoded before.
TEST(JpegDecompressorTest, AnImageGetsNothingOfTheOneBefore) {
  const RgbImage image = MakeTexture(64, 48);
  const std::vector<std::byte> first = EncodeJpeg(MakeTexture(80, 80, 2), {.quality = 20});
  const std::vector<std::byte> progressive =
      EncodeJpeg(MakeTexture(90, 33, 3), {.progressive = true, .restart_rows = 1});
  const std::vector<std::byte> whole = EncodeJpeg(image, {.quality = 95, .restart_rows = 1});
  std::vector<std::vector<std::byte>> images = {whole, progressive,
                                                EncodeJpeg(image, {.components = 1}),
                                                EncodeJpeg(image, {.components = 4})};
  for (const unsigned kind : {0xDBU, 0xC4U, 0xDDU, 0xE0U, 0xEEU, 0xC0U}) {
    images.push_back(WithoutSegments(whole, kind));
    images.push_back(WithoutSegments(images[3], kind));
  }
  for (std::size_t bytes = 100; bytes < whole.size(); bytes += 97) {
    images.emplace_back(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  for (const std::vector<std::byte>& each : images) {
    const DecodedJpeg expected = DecodeWithNewOne(each);
    for (const std::vector<std::byte>& before : {first, progressive, whole}) {
      EXPECT_EQ(DecodeJpeg(before).error, "");
      EXPECT_EQ(DecodeJpeg(each), expected);
    }
  }
}

}  // namespace
}  // namespace headrace
