// The order `epoch` with homes against the same order on storage that every node reads: batches,
// and what each rank gets, are mixed as well.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/order_factory.h"
#include "plan/quality/grade.h"
#include "plan/quality/labels.h"
#include "plan/quality/nulls.h"
#include "plan/quality/quality.h"

namespace headrace {
namespace {

constexpr std::uint64_t kHomesSamples = 1 << 17;
constexpr std::uint64_t kHomesBlock = 16;
constexpr std::uint64_t kHomesBatch = 258;  // of six ranks
constexpr std::uint32_t kRanks = 6;

// Of three nodes: half, a third and a sixth of the blocks.
SampleTable UnevenHomes() {
  std::vector<std::uint32_t> homes;
  for (std::uint64_t sample = 0; sample < kHomesSamples; ++sample) {
    constexpr std::array<std::uint32_t, 6> kHomes = {0, 1, 0, 2, 1, 0};
    homes.push_back(kHomes.at(sample / kHomesBlock % kHomes.size()));
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
}

OrderRequest HomesRequest(std::int64_t homes, SampleTable table, std::int64_t permille) {
  OrderRequest request{.job = {.sample_count = kHomesSamples,
                               .batch_size = kHomesBatch / kRanks,
                               .world_size = kRanks,
                               .ranks = kRanks,
                               .seed = 6,
                               .epochs = 3},
                       .blocks = MakeUniformBlocks(kHomesSamples, kHomesBlock),
                       .homes = std::move(table)};
  request.parameters = {{"pool_bytes", static_cast<std::int64_t>(kHomesSamples) * permille / 1000},
                        {"homes", homes}};
  auto resolved = EpochOrderFactory().Resolve(request);
  EXPECT_TRUE(resolved.ok()) << resolved.status().ToString();
  if (resolved.ok()) request.parameters = std::move(resolved).value();
  return request;
}

// Of the epochs after the first, whose first fill is different: of all ranks, and of each.
struct Measured {
  QualityReport all;
  std::vector<QualityReport> ranks;
};

std::unique_ptr<QualityMeter> HomesMeter(const OrderRequest& request, std::uint64_t ranks) {
  const bool partial = ranks == 1;
  auto meter =
      QualityMeter::Make({.sample_count = kHomesSamples,
                          .blocks = request.blocks,
                          .batch = request.job.batch_size * ranks,
                          .windows = {request.job.batch_size * ranks, 2'048},
                          .padded = partial ? 0 : (kRanks - kHomesSamples % kRanks) % kRanks,
                          .partial = partial});
  EXPECT_TRUE(meter.ok()) << meter.status().ToString();
  return std::move(meter).value();
}

Measured MeasureHomes(const OrderRequest& request) {
  const auto all = HomesMeter(request, kRanks);
  std::vector<std::unique_ptr<QualityMeter>> of_rank;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) of_rank.push_back(HomesMeter(request, 1));
  const auto order = EpochOrderFactory().Make(request, {}).value();
  while (const auto step = order->Next()) {
    if (step->epoch == 0) continue;
    std::vector<std::uint64_t> ids(step->deliveries.size());
    std::vector<std::vector<std::uint64_t>> ids_of_rank(kRanks);
    for (const Delivery& each : step->deliveries) {
      ids[each.slot * kRanks + each.rank] = Raw(each.sample);
      ids_of_rank[each.rank].push_back(Raw(each.sample));
    }
    all->Add(ids);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) of_rank[rank]->Add(ids_of_rank[rank]);
    if (!step->ends_epoch) continue;
    all->EndEpoch();
    for (const auto& meter : of_rank) meter->EndEpoch();
  }
  Measured measured{.all = all->Report()};
  for (const auto& meter : of_rank) measured.ranks.push_back(meter->Report());
  return measured;
}

// 48 pools, 16 of a home. Without homes a pool feeds one rank, whose batches then have mates more
// often than those of all; with homes each rank gets a random part of every batch.
TEST(HomesQualityTest, BatchesAndRanksAreMixedAsWellAsFromStorageThatEveryNodeReads) {
  const Measured shared = MeasureHomes(HomesRequest(1, nullptr, 125));
  for (const bool uneven : {false, true}) {
    SCOPED_TRACE(uneven ? "uneven" : "even");
    const Measured homes = MeasureHomes(HomesRequest(3, uneven ? UnevenHomes() : nullptr, 125));
    EXPECT_EQ(homes.all.missing, 0U);
    EXPECT_EQ(homes.all.duplicated, 0U);
    EXPECT_EQ(homes.all.verdict, shared.all.verdict) << homes.all.why;
    // V - 1 of a batch and of eight of them; a home that has more than its share draws from its
    // pools more often.
    EXPECT_NEAR(homes.all.vif.at(kHomesBatch), shared.all.vif.at(kHomesBatch),
                uneven ? 0.04 : 0.01);
    EXPECT_LT(homes.all.vif.at(2'048), shared.all.vif.at(2'048) * (uneven ? 1.4 : 1.05));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const QualityReport& here = homes.ranks[rank];
      EXPECT_EQ(here.verdict, "excellent") << here.why;
      EXPECT_LT(here.vif.at(2'048), shared.ranks[rank].vif.at(2'048));
      EXPECT_NEAR(here.vif.at(kHomesBatch / kRanks), 1, 0.02);
      // Two epochs, in each a sixth of the samples, drawn anew.
      EXPECT_NEAR(here.seen_share, 1 - 25.0 / 36, 0.01);
    }
  }
}

// The closed form against the order itself.
TEST(HomesQualityTest, TheInflationWithHomesIsWhatIsMeasured) {
  for (const bool uneven : {false, true}) {
    for (const std::int64_t permille : {30, 125}) {
      SCOPED_TRACE((uneven ? "uneven, " : "even, ") + std::to_string(permille));
      const OrderRequest request = HomesRequest(3, uneven ? UnevenHomes() : nullptr, permille);
      const auto expected = ExpectedLabelInflation(EpochOrderFactory(), request, nullptr);
      ASSERT_TRUE(expected.has_value());
      const QualityReport report = MeasureHomes(request).all;
      const QualityTest* test = report.Find("vif_" + std::to_string(kHomesBatch));
      ASSERT_NE(test, nullptr);
      const double chance = (test->high - 1) * 3.3 / quality::NormalQuantile(1e-3 / 40);
      EXPECT_NEAR(report.vif.at(kHomesBatch), expected->of_blocks,
                  std::max(0.1 * (expected->of_blocks - 1), chance));
    }
  }
}

}  // namespace
}  // namespace headrace
