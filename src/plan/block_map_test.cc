#include "plan/block_map.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "headrace/index.h"
#include "headrace/index_writer.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::MakeExtent;

std::vector<std::uint32_t> AllCharges(const BlockMap& blocks) {
  std::vector<std::uint32_t> units(blocks.sample_count());
  blocks.Charges(SampleId{0}, units);
  return units;
}

std::vector<std::uint64_t> Counts(const BlockMap& blocks) {
  std::vector<std::uint64_t> counts;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) counts.push_back(blocks.block(i).count);
  return counts;
}

// The guarantees of every map, whatever it is made from.
void CheckRules(const BlockMap& blocks) {
  const std::vector<std::uint32_t> all = AllCharges(blocks);
  std::uint64_t next = 0;
  std::uint64_t total = 0;
  std::uint64_t largest = 0;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const BlockMap::Block block = blocks.block(i);
    ASSERT_EQ(Raw(block.first), next);
    ASSERT_GE(block.count, 1);
    std::vector<std::uint32_t> units(block.count);
    blocks.Charges(block.first, units);
    std::uint64_t sum = 0;
    for (std::uint32_t j = 0; j < block.count; ++j) {
      ASSERT_EQ(units[j], all[next + j]);
      ASSERT_EQ(blocks.Find(SampleId{next + j}), i);
      ASSERT_GE(units[j], 1);
      sum += units[j];
    }
    total += sum;
    largest = std::max(largest, sum);
    next += block.count;
  }
  ASSERT_EQ(next, blocks.sample_count());
  ASSERT_EQ(total, blocks.total_units());
  ASSERT_EQ(largest, blocks.largest_block());
  ASSERT_EQ(*std::ranges::max_element(all), blocks.largest_sample());
}

std::shared_ptr<const Index> Written(const IndexContents& contents) {
  const internal::TestFolder folder;
  EXPECT_TRUE(WriteIndex(contents, folder / "index").ok());
  auto index = Index::Open(folder / "index");
  EXPECT_TRUE(index.ok()) << index.status().ToString();
  return std::move(index).value();
}

std::shared_ptr<const BlockMap> Made(const IndexContents& contents, std::uint64_t block_samples) {
  auto blocks = MakeIndexBlocks(Written(contents), block_samples);
  EXPECT_TRUE(blocks.ok()) << blocks.status().ToString();
  if (!blocks.ok()) return nullptr;
  CheckRules(*blocks.value());
  return std::move(blocks).value();
}

// One object with samples of these sizes one after the other, and no blocks.
IndexContents Neighbours(const std::vector<std::uint64_t>& sizes) {
  IndexContents contents;
  contents.sample_count = sizes.size();
  contents.root = "/data";
  contents.fields.resize(1);
  contents.fields[0].info = {.name = "bytes"};
  std::uint64_t offset = 0;
  for (const std::uint64_t size : sizes) {
    contents.fields[0].extents.push_back(MakeExtent(0, offset, size));
    offset += size;
  }
  contents.objects = {{.name = "all", .size = offset, .mtime_ns = 1}};
  return contents;
}

TEST(BlockMapTest, UniformBlocksHoldAsManyEachAndTheLastTheRest) {
  for (const std::uint64_t samples : {1U, 2U, 63U, 64U, 65U, 97U, 1000U}) {
    for (const std::uint64_t each : {1U, 2U, 64U, 97U, 5000U}) {
      const auto blocks = MakeUniformBlocks(samples, each);
      CheckRules(*blocks);
      ASSERT_EQ(blocks->sample_count(), samples);
      ASSERT_EQ(blocks->unit_bytes(), 1);
      ASSERT_EQ(blocks->total_units(), samples);
      for (std::uint64_t i = 0; i + 1 < blocks->block_count(); ++i) {
        ASSERT_EQ(blocks->block(i).count, each);
      }
      ASSERT_EQ(blocks->block(blocks->block_count() - 1).count, (samples - 1) % each + 1);
    }
  }
}

TEST(BlockMapTest, UniformBlocksAreNotLimitedByMemory) {
  const auto blocks = MakeUniformBlocks(std::uint64_t{1} << 40, 0xffff'ffff);
  EXPECT_EQ(blocks->block_count(), 257);
  EXPECT_EQ(blocks->block(255).count, 0xffff'ffff);
  EXPECT_EQ(blocks->block(256).count, 256);
  EXPECT_EQ(Raw(blocks->block(256).first), 256 * std::uint64_t{0xffff'ffff});
}

TEST(BlockMapTest, ADatasetWithBlocksKeepsThemUnlessAskedForOthers) {
  const IndexContents contents = internal::SmallContents();
  EXPECT_EQ(Counts(*Made(contents, 0)), (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(Counts(*Made(contents, 1)), (std::vector<std::uint64_t>{1, 1, 1}));
  EXPECT_EQ(Counts(*Made(contents, 3)), (std::vector<std::uint64_t>{3}));
  EXPECT_EQ(Counts(*Made(contents, 0xffff'ffff)), (std::vector<std::uint64_t>{3}));
}

TEST(BlockMapTest, ASampleIsChargedForAllItsStoredFieldsAndNoneThatIsInline) {
  IndexContents contents = Neighbours({100, 0, 64});
  contents.fields.resize(3);
  contents.fields[1].info = {.name = "more"};
  contents.fields[1].extents = {MakeExtent(0, 0, 28), MakeExtent(0, 0, 0), MakeExtent(0, 9, 1)};
  contents.fields[2].info = {
      .name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true};
  contents.fields[2].inline_values.resize(24);
  const auto blocks = Made(contents, 0);
  EXPECT_EQ(blocks->unit_bytes(), 64);
  // 128 bytes; 0 bytes, which take a unit all the same; 65.
  EXPECT_EQ(AllCharges(*blocks), (std::vector<std::uint32_t>{2, 1, 2}));
  EXPECT_EQ(StoredBytes(*Written(contents)), (std::vector<std::uint32_t>{128, 0, 65}));
}

TEST(BlockMapTest, AUnitIsAPowerOfTwoNotAboveAnEighthOfTheMeanSample) {
  const auto unit = [](std::uint64_t bytes) {
    return Made(Neighbours({bytes, bytes}), 0)->unit_bytes();
  };
  EXPECT_EQ(unit(0), 64);
  EXPECT_EQ(unit(1), 64);
  EXPECT_EQ(unit(1023), 64);
  EXPECT_EQ(unit(1024), 128);
  EXPECT_EQ(unit(32'767), 2048);
  EXPECT_EQ(unit(32'768), 4096);
  EXPECT_EQ(unit(100'000'000), 4096);
}

TEST(BlockMapTest, NeighboursFillAMebibyteOnAverageAnd64SamplesAtMost) {
  const auto first = [](std::uint64_t samples, std::uint64_t bytes) {
    return Made(Neighbours(std::vector<std::uint64_t>(samples, bytes)), 0)->block(0).count;
  };
  EXPECT_EQ(first(200, 0), 64);
  EXPECT_EQ(first(200, 1), 64);
  EXPECT_EQ(first(200, (1 << 20) / 64), 64);
  EXPECT_EQ(first(200, (1 << 20) / 63), 63);
  EXPECT_EQ(first(200, (1 << 20) / 2), 2);
  EXPECT_EQ(first(200, (1 << 20) / 2 + 1), 1);
  EXPECT_EQ(first(3, 1 << 25), 1);
  EXPECT_EQ(first(3, 1 << 10), 3);
}

TEST(BlockMapTest, ADatasetWithoutBlocksTellsItsSamplesAndTheirMeanSize) {
  const auto facts = FactsForBlocks(*Written(Neighbours({1'000, 2'000, 6'001})));
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->samples, 3U);
  EXPECT_EQ(facts->sample_bytes, 3'000U);
  EXPECT_EQ(FactsForBlocks(*Written(Neighbours({0, 0})))->sample_bytes, 1U);
  EXPECT_FALSE(FactsForBlocks(*Written(internal::SmallContents())).has_value());
}

TEST(BlockMapTest, UnevenSamplesAreChargedInWholeUnits) {
  Prng prng(3, 0, RandomStream::kOrder);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint64_t> sizes(1 + prng.Below(300));
    const std::uint64_t bound = std::uint64_t{1} << prng.Below(22);
    for (std::uint64_t& size : sizes) size = prng.Below(4) == 0 ? 0 : prng.Below(bound);
    const auto blocks = Made(Neighbours(sizes), prng.Below(2) == 0 ? 0 : 1 + prng.Below(40));
    const std::uint64_t unit = blocks->unit_bytes();
    ASSERT_TRUE(std::has_single_bit(unit));
    const std::vector<std::uint32_t> units = AllCharges(*blocks);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_GE(units[i] * unit, sizes[i]);
      ASSERT_LT(units[i] * unit, sizes[i] + unit + (sizes[i] == 0 ? 1 : 0));
    }
  }
}

TEST(BlockMapTest, UnitsMayBeAsSmallAsAByte) {
  const auto blocks = MakeBlocksInUnits(Written(Neighbours({100, 0, 64, 7, 9})), 2, 1);
  EXPECT_EQ(AllCharges(*blocks), (std::vector<std::uint32_t>{100, 1, 64, 7, 9}));
  EXPECT_EQ(blocks->unit_bytes(), 1U);
  EXPECT_EQ(blocks->block_count(), 3U);
  EXPECT_EQ(blocks->block(2).count, 1U);
  EXPECT_EQ(blocks->largest_block(), 101U);
  EXPECT_EQ(blocks->largest_sample(), 100U);
  EXPECT_EQ(blocks->total_units(), 181U);
}

TEST(BlockMapTest, AnyContentsThatCanBeWrittenKeepTheRules) {
  int with_blocks = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const IndexContents contents = internal::ContentsGenerator(seed).Make();
    const bool stored = std::ranges::any_of(
        contents.fields, [](const IndexContents::Field& field) { return !field.info.is_inline; });
    if (!stored || contents.sample_count == 0) continue;
    const auto blocks = Made(contents, seed % 3);
    if (contents.blocks.empty() || seed % 3 != 0) continue;
    ++with_blocks;
    std::vector<std::uint64_t> counts;
    for (const BlockInfo& block : contents.blocks) counts.push_back(block.sample_count);
    ASSERT_EQ(Counts(*blocks), counts);
  }
  EXPECT_GE(with_blocks, 5);
}

TEST(BlockMapTest, BlocksOfGivenSizesHoldOneSampleEach) {
  const std::vector<std::uint64_t> bytes = {1, 0, 64, 65, 4096, 1000};
  const auto blocks = MakeSampleBlocks(bytes, 64);
  CheckRules(*blocks);
  EXPECT_EQ(AllCharges(*blocks), (std::vector<std::uint32_t>{1, 1, 1, 2, 64, 16}));
  EXPECT_EQ(Counts(*blocks), std::vector<std::uint64_t>(6, 1));
}

TEST(BlockMapTest, WithoutStoredFieldsThereIsNothingToRead) {
  IndexContents contents = Neighbours({1, 2});
  contents.fields[0] = {};
  contents.fields[0].info = {
      .name = "label", .kind = FieldKind::kArray, .dtype = DType::kUInt8, .is_inline = true};
  contents.fields[0].inline_values.resize(2);
  const Status status = MakeIndexBlocks(Written(contents), 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "an order that reads blocks: the dataset stores no field outside its index, so there "
            "is nothing to read; use order 'exact'");
}

TEST(BlockMapTest, TooLargeABlockIsNamed) {
  const Status status =
      MakeIndexBlocks(Written(internal::SmallContents()), std::uint64_t{1} << 32).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "block_samples: got 4294967296, must be below 2^32");
}

// An index with the given blocks, valid or not.
class ClaimingIndex final : public Index {
 public:
  ClaimingIndex(std::uint64_t samples, std::vector<BlockInfo> blocks)
      : samples_(samples), blocks_(std::move(blocks)) {}

  [[nodiscard]] std::uint64_t sample_count() const override { return samples_; }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return fields_; }
  [[nodiscard]] std::uint64_t object_count() const override { return 1; }
  [[nodiscard]] std::uint64_t block_count() const override { return blocks_.size(); }
  [[nodiscard]] const std::string& root() const override { return text_; }
  [[nodiscard]] const std::string& fingerprint() const override { return text_; }
  [[nodiscard]] std::span<const Attribute> attributes() const override { return {}; }
  [[nodiscard]] std::uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] Result<ObjectInfo> object(ObjectId /*id*/) const override { return ObjectInfo{}; }
  [[nodiscard]] Result<BlockInfo> block(std::uint64_t position) const override {
    return blocks_[position];
  }
  [[nodiscard]] Result<Extent> extent(std::size_t /*field*/, SampleId id) const override {
    if (Raw(id) % 2 == 1) return Status(StatusCode::kDataLoss, "damaged");
    return MakeExtent(0, 0, 1000);
  }
  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t /*field*/,
                                                                SampleId /*id*/) const override {
    return Status(StatusCode::kInvalidArgument, "no inline field");
  }
  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t /*field*/,
                                                      SampleId /*id*/) const override {
    return std::nullopt;
  }
  [[nodiscard]] Status VerifyAll() const override { return Status(); }

 private:
  const std::uint64_t samples_;
  const std::vector<BlockInfo> blocks_;
  const std::vector<FieldInfo> fields_ = {{.name = "bytes"}};
  const std::string text_;
};

TEST(BlockMapTest, BlocksThatAreNotAllSamplesInOrderAreDataLoss) {
  const auto error = [](const std::vector<std::pair<std::uint64_t, std::uint64_t>>& claims) {
    std::vector<BlockInfo> blocks;
    blocks.reserve(claims.size());
    for (const auto& [first, count] : claims) {
      blocks.push_back({.first_sample = SampleId{first}, .sample_count = count});
    }
    const Status status =
        MakeIndexBlocks(std::make_shared<ClaimingIndex>(10, std::move(blocks)), 0).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_EQ(error({{0, 4}, {5, 5}}),
            "block 1 of the index begins at sample 5, must begin at 4; build the index again");
  EXPECT_EQ(error({{1, 9}}),
            "block 0 of the index begins at sample 1, must begin at 0; build the index again");
  EXPECT_EQ(error({{0, 6}, {5, 5}}),
            "block 1 of the index begins at sample 5, must begin at 6; build the index again");
  EXPECT_EQ(error({{0, 10}, {10, 0}}),
            "block 1 of the index holds 0 samples, must hold 1 to 4294967295; build the index "
            "again");
  EXPECT_EQ(error({{0, std::uint64_t{1} << 32}}),
            "block 0 of the index holds 4294967296 samples, must hold 1 to 4294967295; build the "
            "index again");
  EXPECT_EQ(error({{0, 9}}),
            "the blocks of the index hold 9 of its 10 samples; build the index again");
  EXPECT_EQ(error({{0, 9}, {9, 2}}),
            "the blocks of the index hold 11 of its 10 samples; build the index again");
}

TEST(BlockMapTest, ADamagedBlockTableIsDataLossAndOtherBlocksCanBeHad) {
  const internal::TestFolder folder;
  std::vector<std::byte> file = internal::FileOf(internal::SmallContents());
  for (const internal::Section& section : internal::SectionsOf(file)) {
    if (section.kind != internal::SectionKind::kBlocks) continue;
    internal::Store(std::uint64_t{7}, file.data() + section.offset);  // first sample of block 0
  }
  internal::Reseal(file);
  internal::WriteFile(folder / "index", file);
  const auto index = Index::Open(folder / "index");
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_EQ(MakeIndexBlocks(index.value(), 0).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(MakeIndexBlocks(index.value(), 2).ok());
}

TEST(BlockMapTest, ASampleWhoseExtentIsDamagedTakesOneUnit) {
  const auto blocks =
      MakeIndexBlocks(std::make_shared<ClaimingIndex>(4, std::vector<BlockInfo>()), 0);
  ASSERT_TRUE(blocks.ok());
  CheckRules(*blocks.value());
  EXPECT_EQ(blocks.value()->unit_bytes(), 64);  // of a mean of 500 bytes
  EXPECT_EQ(AllCharges(*blocks.value()), (std::vector<std::uint32_t>{16, 1, 16, 1}));
}

}  // namespace
}  // namespace headrace
