#include "codec/image/geometry.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace headrace {
namespace {

ImageTransform CropTransform() {
  ImageTransform transform;
  transform.random_resized_crop.emplace();
  transform.exact = true;
  return transform;
}

TEST(GeometryTest, ExponentialAndLogarithmAreWithinAFewUlpOfTheTruth) {
  Prng prng(1, 0, RandomStream::kAugment, 0);
  for (int i = 0; i < 20000; ++i) {
    const double x = 20 * prng.Uniform() - 10;
    EXPECT_NEAR(ExpToTheBit(x) / std::exp(x), 1.0, 0x1p-50);
    EXPECT_NEAR(LogToTheBit(std::exp(x)), x, 0x1p-48);
  }
  EXPECT_EQ(ExpToTheBit(0.0), 1.0);
}

// The bits are part of the specification: a change here changes the training data of jobs.
TEST(GeometryTest, BitsOfExponentialAndLogarithmAreFrozen) {
  EXPECT_EQ(LogToTheBit(0.75), -0x1.269621134db92p-2);
  EXPECT_EQ(LogToTheBit(4.0 / 3), 0x1.269621134db90p-2);
  EXPECT_EQ(ExpToTheBit(0.25), 0x1.48b5e3c3e8186p+0);
}

TEST(GeometryTest, ABoxIsInsideTheImageAndOfTheAskedAreaAndAspect) {
  const ImageTransform transform = CropTransform();
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const Framing framing = ChooseFraming(
        transform, {500, 375}, {.seed = 3, .epoch = 1, .sample = SampleId{i}}, {.halvings_max = 3});
    const double width = framing.x.end - framing.x.begin;
    const double height = framing.y.end - framing.y.begin;
    ASSERT_LT(framing.x.begin, framing.x.end);
    ASSERT_LE(framing.x.end, 500U);
    ASSERT_LT(framing.y.begin, framing.y.end);
    ASSERT_LE(framing.y.end, 375U);
    EXPECT_GE((width + 1) * (height + 1), 0.08 * 500 * 375);
    EXPECT_GE((width + 1) / (height - 1), 0.75);
    EXPECT_LE((width - 1) / (height + 1), 4.0 / 3);
    EXPECT_EQ(framing.x.outputs, 224U);
    EXPECT_EQ(framing.halvings, 0U);
  }
}

TEST(GeometryTest, BoxesCoverPositionsAndAreasEvenly) {
  const ImageTransform transform = CropTransform();
  constexpr int kDraws = 20000;
  double area = 0;
  double middle = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const Framing framing =
        ChooseFraming(transform, {2000, 2000}, {.seed = 9, .epoch = 0, .sample = SampleId{i}}, {});
    const double width = framing.x.end - framing.x.begin;
    area += width * (framing.y.end - framing.y.begin) / 4e6 / kDraws;
    middle += (framing.x.begin + framing.x.end) / 2.0 / 2000 / kDraws;
  }
  EXPECT_NEAR(middle, 0.5, 0.005);
  EXPECT_NEAR(area, 0.478,
              0.006);  // torchvision's: less than 0.54, as large boxes often do not fit
}

TEST(GeometryTest, WhereNoBoxFitsTheCentralOneOfTheNearestAspectIsTaken) {
  const ImageTransform transform = CropTransform();
  const Framing wide = ChooseFraming(transform, {4000, 10}, {}, {});
  EXPECT_EQ(wide.x.end - wide.x.begin, 13U);  // round(10 * 4 / 3)
  EXPECT_EQ(wide.x.begin, 1993U);
  EXPECT_EQ(wide.y.end - wide.y.begin, 10U);
  const Framing tall = ChooseFraming(transform, {10, 4000}, {}, {});
  EXPECT_EQ(tall.y.end - tall.y.begin, 13U);  // round(10 / 0.75)
  EXPECT_EQ(tall.x.end - tall.x.begin, 10U);
}

TEST(GeometryTest, TheKeyAndNothingElseDecides) {
  ImageTransform transform = CropTransform();
  transform.flip_probability = 0.5;
  const SampleKey key{.seed = 5, .epoch = 6, .sample = SampleId{7}};
  const Framing first = ChooseFraming(transform, {640, 480}, key, {});
  const Framing again = ChooseFraming(transform, {640, 480}, key, {.halvings_max = 3});
  EXPECT_EQ(first.x, again.x);
  EXPECT_EQ(first.y, again.y);
  EXPECT_EQ(first.flip, again.flip);
  for (const SampleKey& other :
       {SampleKey{4, 6, SampleId{7}}, SampleKey{5, 7, SampleId{7}}, SampleKey{5, 6, SampleId{8}}}) {
    const Framing framing = ChooseFraming(transform, {640, 480}, other, {});
    EXPECT_FALSE(framing.x == first.x && framing.y == first.y);
  }
}

TEST(GeometryTest, FlipsAreAsFrequentAsAsked) {
  ImageTransform transform;
  for (const double probability : {0.0, 0.25, 1.0}) {
    transform.flip_probability = probability;
    int flips = 0;
    for (std::uint64_t i = 0; i < 10000; ++i) {
      flips +=
          ChooseFraming(transform, {8, 8}, {.seed = 1, .sample = SampleId{i}}, {}).flip ? 1 : 0;
    }
    EXPECT_NEAR(flips / 10000.0, probability, 0.015);
  }
}

TEST(GeometryTest, ShorterSideAndCentreRoundAsTorchvisionDoes) {
  ImageTransform transform;
  transform.resize_shorter = 256;
  transform.width = 223;
  transform.height = 224;
  const Framing framing = ChooseFraming(transform, {500, 375}, {}, {});
  EXPECT_EQ(framing.x.outputs_total, 341U);  // int(256 * 500 / 375)
  EXPECT_EQ(framing.x.outputs_first, 59U);   // round(118 / 2)
  EXPECT_EQ(framing.y.outputs_total, 256U);
  EXPECT_EQ(framing.y.outputs_first, 16U);
  transform.width = 224;
  EXPECT_EQ(ChooseFraming(transform, {500, 375}, {}, {}).x.outputs_first, 58U);  // 58.5 to even
  transform.width = 226;
  EXPECT_EQ(ChooseFraming(transform, {500, 375}, {}, {}).x.outputs_first, 58U);  // 57.5 to even
}

TEST(GeometryTest, FastHalvesWhileFourTimesTheWantedResolutionIsLeft) {
  ImageTransform transform;
  transform.width = 100;
  transform.height = 100;
  const auto halvings = [&](std::uint32_t width, std::uint32_t height) {
    return ChooseFraming(transform, {width, height}, {}, {.halvings_max = 3}).halvings;
  };
  EXPECT_EQ(halvings(799, 9000), 0U);
  EXPECT_EQ(halvings(800, 800), 1U);
  EXPECT_EQ(halvings(1599, 9000), 1U);
  EXPECT_EQ(halvings(1600, 1600), 2U);
  EXPECT_EQ(halvings(3199, 9000), 2U);
  EXPECT_EQ(halvings(3200, 3200), 3U);
  EXPECT_EQ(halvings(65000, 65000), 3U);
  const DecoderScaling coarse{.halvings_max = 3, .chroma_halvings = 1};
  EXPECT_EQ(ChooseFraming(transform, {1599, 1599}, {}, coarse).halvings, 0U);
  EXPECT_EQ(ChooseFraming(transform, {1600, 1600}, {}, coarse).halvings, 1U);
  const Framing framing = ChooseFraming(transform, {1601, 803}, {}, {.halvings_max = 3});
  EXPECT_EQ(framing.halvings, 1U);
  EXPECT_EQ(framing.x.end, 1601U);  // of the stored image, whatever the halvings
  transform.exact = true;
  EXPECT_EQ(halvings(9999, 9999), 0U);
}

}  // namespace
}  // namespace headrace
