// Whatever the input, a codec that succeeds has written its whole row, from nothing but the input:
// decoded twice, into rows and with scratch memory that held other bytes before, valid and damaged
// inputs give the same rows or the same errors.

#include <malloc.h>
#include <tiff.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "codec/bytes_codec.h"
#include "codec/image/image_codec.h"
#include "codec/image/test_images.h"
#include "codec/image/whole_image.h"
#include "codec/scratch_memory.h"
#include "codec/sound/sound_codec.h"
#include "codec/sound/sound_header.h"
#include "codec/sound/test_sounds.h"
#include "codec/widen_codec.h"

namespace headrace {
namespace {

using Stored = std::vector<std::byte>;

struct Poison {
  std::byte row;
  std::byte scratch;
};

struct Row {
  Status status;
  Stored bytes;
};

// Decodes into a row that holds poison.row.
using Way = std::function<Row(const Stored&, const Poison&)>;

struct Input {
  std::string name;
  Stored stored;
  std::vector<Way> ways;
};

Way WayOf(const std::shared_ptr<FieldCodec>& codec, std::uint64_t row_bytes = 0) {
  return [=](const Stored& stored, const Poison& poison) {
    Row row;
    row.bytes.assign(row_bytes != 0 ? row_bytes : codec->RowBytes(stored.size()), poison.row);
    ScratchLimit limit{.retained_bytes_max = 0};
    row.status = codec->DecodeWithin(stored, {.seed = 5}, row.bytes, limit);
    return row;
  };
}

Row DecodedWhole(const Stored& stored, const Poison& poison) {
  Row row;
  ScratchLimit limit;
  row.status = DecodeWholeImage(stored, /*pixels_max=*/1 << 20, limit,
                                [&](std::uint32_t height, std::uint32_t width) {
                                  row.bytes.assign(std::size_t{3} * height * width, poison.row);
                                  return row.bytes.data();
                                });
  return row;
}

// As many ways through decoders, resamplers and writers of rows as there are.
std::vector<Way> ImageWays(const test::RgbImage& image) {
  ImageTransform copied{.height = image.height,
                        .width = image.width,
                        .channels_first = false,
                        .exact = true,
                        .pixels_max = 1 << 20};
  ImageTransform halved{.height = 5, .width = 7, .to_float = true, .pixels_max = 1 << 20};
  ImageTransform cropped{.flip_probability = 0.5, .height = 13, .width = 9, .pixels_max = 1 << 20};
  cropped.random_resized_crop.emplace(RandomResizedCrop{.scale = {0.3, 0.5}});
  std::vector<Way> ways = {DecodedWhole};
  for (const ImageTransform& each : {copied, halved, cropped}) {
    ways.push_back(WayOf(MakeImageCodec(each).value()));
  }
  return ways;
}

void AddTiffs(const test::RgbImage& image, const std::vector<Way>& ways,
              std::vector<Input>& inputs) {
  const auto add = [&](const std::string& name, const test::TiffOptions& options) {
    inputs.push_back({"TIFF " + name, test::EncodeTiff(image, options), ways});
  };
  for (const unsigned compression : std::array<unsigned, 4>{
           COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS}) {
    const std::string name = "compression " + std::to_string(compression);
    const bool can_differ =
        compression == COMPRESSION_LZW || compression == COMPRESSION_ADOBE_DEFLATE;
    add(name, {.compression = compression, .differences = can_differ});
    add(name + ", whole strips", {.compression = compression, .whole_strips = true});
    add(name + ", planes of 16 bits",
        {.mode = "wb", .bits = 16, .compression = compression, .planes = true});
    add(name + ", tiles",
        {.samples = 4, .compression = compression, .tile_width = 16, .tile_height = 16});
    add(name + ", a palette", {.photometric = 3, .samples = 1, .compression = compression});
  }
  for (const unsigned compression : std::array<unsigned, 3>{
           COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4}) {
    add("fax " + std::to_string(compression),
        {.photometric = 0, .samples = 1, .bits = 1, .compression = compression});
  }
}

std::vector<Input> Images() {
  const test::RgbImage image = test::MakeTexture(45, 37);
  const std::vector<Way> ways = ImageWays(image);
  std::vector<Input> inputs;
  for (const bool progressive : {false, true}) {
    const std::string kind = progressive ? "JPEG of several scans" : "JPEG";
    for (const int components : {1, 3, 4}) {
      inputs.push_back(
          {kind + ", components " + std::to_string(components),
           test::EncodeJpeg(image,
                            {.quality = 50, .components = components, .progressive = progressive}),
           ways});
    }
    inputs.push_back({kind + " of 4:2:2 with restarts",
                      test::EncodeJpeg(image, {.quality = 50,
                                               .vertical_sampling = 1,
                                               .progressive = progressive,
                                               .restart_rows = 1}),
                      ways});
  }
  for (const bool interlaced : {false, true}) {
    inputs.push_back({"PNG", test::EncodePng(image, {.interlaced = interlaced}), ways});
    inputs.push_back(
        {"PNG of 16 bits",
         test::EncodePng(image, {.color_type = 6, .bit_depth = 16, .interlaced = interlaced}),
         ways});
    inputs.push_back(
        {"PNG with a palette",
         test::EncodePng(image, {.color_type = 3, .bit_depth = 4, .interlaced = interlaced}),
         ways});
  }
  for (const bool lossless : {false, true}) {
    inputs.push_back({"WebP",
                      test::EncodeWebp(image, {.lossless = lossless, .alpha = true, .quality = 40}),
                      ways});
  }
  AddTiffs(image, ways, inputs);
  inputs.push_back({"bytes that are checked",
                    test::EncodePng(image),
                    {WayOf(MakeCheckedImageCodec(EncodedImages::kDecodable))}});
  return inputs;
}

std::vector<Input> Sounds() {
  constexpr std::uint32_t kChannels = 2;
  const test::Sound sound = test::MakeTones(700, kChannels);
  std::vector<Input> inputs;
  for (const int format : test::SoundFormats()) {
    std::vector<Way> ways;
    for (const std::uint64_t frames : {300U, 1000U}) {
      const SoundTransform clip{
          .frames = frames, .random_begin = true, .channels = kChannels, .rate = sound.rate};
      ways.push_back(WayOf(MakeSoundCodec(clip).value()));
    }
    const std::uint64_t row_bytes = sound.numbers.size() * sizeof(float);
    ways.push_back(WayOf(MakeSoundCodec({}).value(), row_bytes));
    inputs.push_back({"sound of format " + std::to_string(format), test::EncodeSound(sound, format),
                      std::move(ways)});
  }
  return inputs;
}

std::vector<Input> Arrays() {
  Stored stored(96);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::byte>(7 * i);
  const auto widen = [](std::optional<std::uint64_t> count) {
    const NumberType from{NumberType::Kind::kUnsigned, 2};
    const NumberType to{NumberType::Kind::kSigned, 8};
    return WayOf(MakeWidenCodec(from, to, count, WidenBy::kBest).value());
  };
  return {{"bytes", stored, {WayOf(MakeBytesCodec())}},
          {"an array", stored, {WayOf(MakeArrayCodec(stored.size()))}},
          {"an array to widen", stored, {widen(stored.size() / 2), widen(std::nullopt)}}};
}

// What decoders take from malloc() holds `byte`, too, where the C library can do so.
void PoisonHeap([[maybe_unused]] std::byte byte) {
#ifdef M_PERTURB
  // NOLINTBEGIN(concurrency-mt-unsafe): one thread.
  mallopt(M_MMAP_MAX, 0);  // Mapped blocks are zeroed.
  mallopt(M_PERTURB, ~std::to_integer<int>(byte) & 0xFF);
  // NOLINTEND(concurrency-mt-unsafe)
#endif
}

Row Decoded(const Way& way, const Stored& stored, const Poison& poison) {
  ThreadScratchUse().fill = poison.scratch;
  PoisonHeap(poison.scratch);
  Row row = way(stored, poison);
  ThreadScratchUse().fill.reset();
  return row;
}

// Returns how many ways decode `stored`.
int ExpectTheSameTwice(const Input& input, const Stored& stored, const std::string& change) {
  int succeeded = 0;
  for (std::size_t w = 0; w < input.ways.size(); ++w) {
    const Row one = Decoded(input.ways[w], stored, {std::byte{0x00}, std::byte{0x5A}});
    const Row other = Decoded(input.ways[w], stored, {std::byte{0xA5}, std::byte{0xC3}});
    EXPECT_EQ(one.status.ToString(), other.status.ToString())
        << input.name << ", way " << w << ", " << change;
    if (!one.status.ok() || !other.status.ok()) continue;
    ++succeeded;
    EXPECT_TRUE(one.bytes == other.bytes) << input.name << ", way " << w << ", " << change;
  }
  return succeeded;
}

void ExpectTheSameOfDamaged(const std::vector<Input>& inputs, std::uint64_t damages) {
  for (const Input& input : inputs) {
    ASSERT_EQ(ExpectTheSameTwice(input, input.stored, "as it is"),
              static_cast<int>(input.ways.size()))
        << input.name;
    Prng draw(11, 0, RandomStream::kOrder);
    for (std::uint64_t i = 0; i < damages; ++i) {
      Stored damaged = input.stored;
      const std::size_t at = draw.Below(damaged.size());
      const auto flipped = static_cast<std::byte>(1 + draw.Below(255));
      damaged[at] ^= flipped;
      ExpectTheSameTwice(
          input, damaged,
          "byte " + std::to_string(at) + " ^ " + std::to_string(std::to_integer<int>(flipped)));
      if (testing::Test::HasFailure()) return;
    }
    for (std::uint64_t i = 0; i < damages / 8; ++i) {
      Stored cut = input.stored;
      cut.resize(draw.Below(cut.size()));
      ExpectTheSameTwice(input, cut, "cut to " + std::to_string(cut.size()));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Slow builds look for other mistakes.
#ifdef NDEBUG
constexpr std::uint64_t kDamages = 300;
#else
constexpr std::uint64_t kDamages = 30;
#endif

TEST(WholeRowsTest, ImagesDependOnTheirBytesAlone) { ExpectTheSameOfDamaged(Images(), kDamages); }

TEST(WholeRowsTest, SoundsDependOnTheirBytesAlone) { ExpectTheSameOfDamaged(Sounds(), kDamages); }

TEST(WholeRowsTest, ArraysDependOnTheirBytesAlone) { ExpectTheSameOfDamaged(Arrays(), kDamages); }

}  // namespace
}  // namespace headrace
