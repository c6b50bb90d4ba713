#include "plan/left_out.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/papers.h"
#include "plan/testing/odd_blocks.h"
#include "plan/testing/stream_ledger.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointee;

SampleTable NumbersTable(std::vector<std::uint32_t> numbers) {
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(numbers));
}

// A dataset, some of its samples that are left out, and what is left of it, found one by one.
struct LeftCase {
  std::shared_ptr<const OddBlocks> blocks;
  std::shared_ptr<const LeftOut> left_out;
  std::vector<std::uint64_t> left;
};

LeftCase RandomLeftCase(std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kAugment);
  const std::uint64_t samples = 2 + prng.Below(150);
  std::vector<std::uint32_t> counts;
  for (std::uint64_t rest = samples; rest > 0; rest -= counts.back()) {
    counts.push_back(static_cast<std::uint32_t>(std::min(rest, 1 + prng.Below(9))));
  }
  std::vector<std::uint32_t> units(samples);
  for (std::uint32_t& each : units) each = static_cast<std::uint32_t>(1 + prng.Below(5));
  const std::uint64_t of_ten = prng.Below(10);
  std::vector<std::uint32_t> out;
  LeftCase made;
  for (std::uint32_t i = 0; i < samples; ++i) {
    const bool is_last_chance = i + 1 == samples && made.left.empty();
    if (prng.Below(10) < of_ten && !is_last_chance) {
      out.push_back(i);
    } else {
      made.left.push_back(i);
    }
  }
  made.blocks = std::make_shared<OddBlocks>(counts, std::move(units));
  made.left_out = LeftOut::Make(NumbersTable(std::move(out)), samples).value();
  return made;
}

constexpr std::uint64_t kLeftCases = 200;

TEST(LeftOutTest, PlacesAreThoseOfASearchOneByOne) {
  for (std::uint64_t seed = 0; seed < kLeftCases; ++seed) {
    const LeftCase each = RandomLeftCase(seed);
    ASSERT_EQ(each.left_out->places(), each.left.size());
    for (std::uint64_t place = 0; place < each.left.size(); ++place) {
      ASSERT_EQ(Raw(each.left_out->At(SampleId{place})), each.left[place]) << seed;
      ASSERT_EQ(each.left_out->PlacesBefore(SampleId{each.left[place]}), place) << seed;
    }
    for (std::uint64_t i = 0; i < each.blocks->sample_count(); ++i) {
      ASSERT_EQ(each.left_out->Has(SampleId{i}), !std::ranges::binary_search(each.left, i));
    }
  }
}

TEST(LeftOutTest, BlocksHaveTheOtherSamplesOfTheirOwnWithTheirSizes) {
  for (std::uint64_t seed = 0; seed < kLeftCases; ++seed) {
    const LeftCase each = RandomLeftCase(seed);
    const auto blocks = BlocksWithout(each.blocks, each.left_out);
    ASSERT_EQ(blocks->sample_count(), each.left.size());
    std::uint64_t next = 0;
    std::uint64_t total = 0;
    std::uint64_t largest = 0;
    for (std::uint64_t i = 0; i < blocks->block_count(); ++i) {
      const BlockMap::Block block = blocks->block(i);
      ASSERT_EQ(Raw(block.first), next) << seed;
      ASSERT_GE(block.count, 1);
      std::vector<std::uint32_t> units(block.count);
      blocks->Charges(block.first, units);
      for (std::uint32_t j = 0; j < block.count; ++j) {
        const std::uint64_t sample = each.left[next + j];
        ASSERT_EQ(each.blocks->Find(SampleId{sample}),
                  each.blocks->Find(SampleId{each.left[next]}));
        ASSERT_EQ(blocks->Find(SampleId{next + j}), i);
        std::uint32_t own = 0;
        each.blocks->Charges(SampleId{sample}, {&own, 1});
        ASSERT_EQ(units[j], own) << seed;
      }
      const std::uint64_t sum = std::accumulate(units.begin(), units.end(), std::uint64_t{0});
      total += sum;
      largest = std::max(largest, sum);
      next += block.count;
    }
    ASSERT_EQ(next, each.left.size());
    EXPECT_EQ(blocks->total_units(), total);
    EXPECT_EQ(blocks->largest_block(), largest);
  }
}

// Every order, on every rank: each epoch has each sample that is left once, and no other; what is
// delivered is resident, in the memory that the order promises.
TEST(LeftOutTest, EveryOrderGivesWhatIsLeftOnce) {
  RegisterPapers();
  for (std::uint64_t seed = 0; seed < kLeftCases; ++seed) {
    const LeftCase each = RandomLeftCase(seed);
    for (const OrderFactory* const factory : Orders().rows()) {
      OrderRequest request{.job = {.sample_count = each.left.size(),
                                   .batch_size = 1 + seed % 7,
                                   .world_size = 1,
                                   .seed = seed,
                                   .epochs = 2},
                           .parameters = {},
                           .blocks = nullptr,
                           .homes = nullptr,
                           .costs = nullptr};
      if (factory->reads_blocks()) request.blocks = BlocksWithout(each.blocks, each.left_out);
      request.parameters = factory->Resolve(request).value();
      const auto order = OrderWithout(factory->Make(request, Position()).value(), each.left_out);
      StreamLedger ledger(*each.blocks, factory->ResidentUnits(request).value());
      std::vector<std::vector<std::uint64_t>> epochs(2);
      while (const auto step = order->Next()) {
        ASSERT_NO_FATAL_FAILURE(ledger.Run(*step)) << factory->name() << " seed " << seed;
        for (const Delivery& one : step->deliveries) {
          epochs.at(step->epoch).push_back(Raw(one.sample));
        }
      }
      for (std::vector<std::uint64_t>& epoch : epochs) {
        std::ranges::sort(epoch);
        ASSERT_EQ(epoch, each.left) << factory->name() << " seed " << seed;
      }
    }
  }
}

TEST(LeftOutTest, ATableKeepsTheRowsOfWhatIsLeft) {
  const auto left_out = LeftOut::Make(NumbersTable({0, 2}), 4).value();
  EXPECT_THAT(left_out->Without(NumbersTable({10, 11, 12, 13})), Pointee(ElementsAre(11, 13)));
  EXPECT_THAT(left_out->Without(NumbersTable({0, 1, 2, 3, 4, 5, 6, 7})),
              Pointee(ElementsAre(2, 3, 6, 7)));
  EXPECT_THAT(left_out->Without(NumbersTable({1, 2, 3})), Pointee(ElementsAre(1, 2, 3)));
  EXPECT_EQ(left_out->Without(nullptr), nullptr);
}

TEST(LeftOutTest, ListsThatCannotBeAreRefused) {
  const auto error = [](const std::vector<std::uint32_t>& numbers) {
    return std::string(LeftOut::Make(NumbersTable(numbers), 4).status().message());
  };
  EXPECT_THAT(error({1, 4}), HasSubstr("leaving out sample 4: the dataset has 4 samples"));
  EXPECT_THAT(error({2, 1}), HasSubstr("1 follows 2; the numbers must ascend"));
  EXPECT_THAT(error({2, 2}), HasSubstr("2 follows 2"));
}

TEST(LeftOutTest, AListOfSomebodyElseHasNoneOfThem) {
  const ListOrderOptions list{.ids = {SampleId{1}, SampleId{3}}, .batch_ends = {2}};
  EXPECT_TRUE(CheckNoneLeftOut(list, nullptr).ok());
  EXPECT_TRUE(CheckNoneLeftOut(list, NumbersTable({0, 2})).ok());
  EXPECT_THAT(std::string(CheckNoneLeftOut(list, NumbersTable({3})).message()),
              HasSubstr("sampler position 1: sample 3 is left out"));
}

}  // namespace
}  // namespace headrace
