#include "engine/tiers/source_choice.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gtest/gtest.h"
#include "plan/block_map.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

SizedRates RateOf(double bytes_per_second) {
  return SizedRates::OfAnySize(Curve::Make({{.users = 1, .rate = bytes_per_second}}).value());
}

// Every step uses block 0, which is in tier 1 here and in tier 0 of node 3, and block 1, which is
// there alone.
class AtNodeThree final : public Placement {
 public:
  explicit AtNodeThree(const std::uint32_t& readers) : readers_(readers) {}
  std::optional<PlacedStep> Next() override {
    std::vector<PlannedUse> uses;
    for (const std::uint32_t block : {0U, 1U}) {
      const TierNumber here = block == 0 ? 1 : kNoTier;
      uses.push_back({.block = block, .tier = here, .peer = 3, .peer_tier = 0, .at_peer = true});
    }
    return PlacedStep{.at = {.epoch = 0, .step = step_++}, .uses = std::move(uses), .ops = {}};
  }
  [[nodiscard]] std::optional<std::uint32_t> StorageReaders() const override { return readers_; }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  const std::uint32_t& readers_;
  std::uint64_t step_ = 0;
};

class SourceChoiceTest : public ::testing::Test {
 protected:
  // Blocks of `samples` samples. Samples of 100 bytes; block 0 is held in the second tier.
  void Make(std::uint64_t samples) {
    const std::vector<std::vector<std::uint32_t>> held = {{}, {0}};
    cache_ = std::make_unique<TierCache>(std::vector<Tier*>{fast_.get(), slow_.get()},
                                         MakeUniformBlocks(8, samples),
                                         std::make_unique<AtNodeThree>(readers_), held, /*node=*/0);
    for (std::uint64_t i = 0; i < samples; ++i) {
      const ByteRange range = LoopHarness::ExtentOf(i).range;
      slow_->Insert(
          SampleId{i},
          {std::as_bytes(std::span(test_.index.objects[0])).subspan(range.offset, range.size)},
          [](const Status& status) { EXPECT_TRUE(status.ok()); });
    }
    cache_->PlanStep();
  }
  // Bytes a second: tier 0 (and so that of node 3), tier 1, the link, storage.
  void SetModel(double fast, double slow, double link, double storage) {
    model_ = MachineModel{.storage = {.rate = RateOf(storage)}};
    model_->tiers = {{.read = RateOf(fast), .write = {}}, {.read = RateOf(slow), .write = {}}};
    model_->link = LinkModel{.rate = RateOf(link)};
  }
  // "tier", "node 3", "tier, else node 3", "storage"
  static std::string Text(const SourceChoice::Sources& from) {
    std::string text = from.tier ? "tier" : "";
    if (!from.nodes.has_value()) return text.empty() ? "storage" : text;
    return text + (text.empty() ? "node " : ", else node ") + std::to_string(from.nodes->first);
  }
  std::string OfSample(std::uint64_t sample, bool asks = true) {
    SourceChoice choice(model_ ? &*model_ : nullptr, *cache_, test_.loop.fields);
    return Text(choice.Choose(SampleId{sample}, cache_->Find(SampleId{sample}), asks));
  }
  std::string OfBlock(std::uint64_t block, std::uint64_t read_bytes_max, bool asks = true) {
    SourceChoice choice(model_ ? &*model_ : nullptr, *cache_, test_.loop.fields);
    const BlockRead read{.first = SampleId{block * 4}, .count = 4, .kept = {}};
    return Text(choice.ChooseForBlock(read, 4, read_bytes_max, asks));
  }

  LoopHarness test_;
  std::unique_ptr<RamTier> fast_ = RamTier::Make(8192, 1024).value();
  std::unique_ptr<RamTier> slow_ = RamTier::Make(8192, 1024).value();
  std::uint32_t readers_ = 1;
  std::optional<MachineModel> model_;
  std::unique_ptr<TierCache> cache_;
};

TEST_F(SourceChoiceTest, WithoutAModelTheOwnTierIsFirstThenTheNodeThenStorage) {
  Make(1);
  EXPECT_EQ(OfSample(0), "tier");
  EXPECT_EQ(OfSample(1), "tier, else node 3") << "it is not in the tier";
  EXPECT_EQ(OfSample(1, /*asks=*/false), "tier");
  EXPECT_EQ(OfSample(2), "tier") << "nobody has it: storage";
}

TEST_F(SourceChoiceTest, WithAModelTheFastestIsTaken) {
  Make(1);
  SetModel(1e9, 1e6, 1e8, 1e5);
  EXPECT_EQ(OfSample(0), "node 3");
  EXPECT_EQ(OfSample(0, /*asks=*/false), "tier");
  EXPECT_EQ(OfSample(1), "tier, else node 3");
  SetModel(1e9, 1e6, 1e5, 1e8);
  EXPECT_EQ(OfSample(0), "storage");
  EXPECT_EQ(OfSample(1), "tier") << "not there: storage";
  SetModel(1e9, 1e8, 1e6, 1e5);
  EXPECT_EQ(OfSample(0), "tier");
  SetModel(1e9, 1e8, 1e5, 1e6);
  EXPECT_EQ(OfSample(0), "tier");
}

// Both nodes are to have it, and neither has: they would wait for each other.
TEST_F(SourceChoiceTest, ANodeIsNotAskedForWhatThisOneIsToHaveUnlessItReadsForAll) {
  Make(1);
  SetModel(1e9, 1e6, 1e8, 1e5);
  EXPECT_EQ(OfSample(0), "node 3");
  slow_->Erase(SampleId{0});
  EXPECT_EQ(OfSample(0), "tier") << "storage";
}

TEST_F(SourceChoiceTest, NodesThatReadStorageInTheStepCount) {
  readers_ = 3;
  Make(1);
  SetModel(1e9, 1e6, 1e5, 2e6);
  EXPECT_EQ(OfSample(0), "tier") << "storage gives each of three nodes less";
  readers_ = 1;
  cache_->PlanStep();
  EXPECT_EQ(OfSample(0), "storage");
}

TEST_F(SourceChoiceTest, ABlockIsOneReadOfStorageAndManyOfTiersAndNodes) {
  Make(4);
  SetModel(1e9, 1e9, 2e6, 1e6);
  model_->storage.rate = SizedRates::Make({{.bytes = 100, .rate = Curve::Make({{1, 1e6}}).value()},
                                           {.bytes = 400, .rate = Curve::Make({{1, 4e6}}).value()}})
                             .value();
  EXPECT_EQ(OfBlock(1, 100), "tier, else node 3") << "samples of storage, one by one";
  EXPECT_EQ(OfBlock(1, 1000), "tier") << "storage reads the block at once, faster than the node";
  EXPECT_EQ(OfBlock(0, 1000), "tier");
  model_->tiers[1].read = RateOf(3e6);
  EXPECT_EQ(OfBlock(0, 100), "tier");
  EXPECT_EQ(OfBlock(0, 1000), "storage");
  model_->link = LinkModel{.rate = RateOf(1e8)};
  EXPECT_EQ(OfBlock(0, 1000), "node 3");
  EXPECT_EQ(OfBlock(0, 1000, /*asks=*/false), "storage");
}

TEST_F(SourceChoiceTest, WithoutAModelABlockIsTakenFromItsTierOrElseItsNode) {
  Make(4);
  EXPECT_EQ(OfBlock(0, 1000), "tier");
  EXPECT_EQ(OfBlock(1, 1000), "tier, else node 3");
  EXPECT_EQ(OfBlock(1, 1000, /*asks=*/false), "tier");
}

}  // namespace
}  // namespace headrace
