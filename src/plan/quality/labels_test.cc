#include "plan/quality/labels.h"

#include <cmath>
#include <memory>
#include <numeric>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "headrace/index.h"
#include "headrace/papers.h"
#include "plan/quality/measures.h"
#include "plan/quality/quality.h"

namespace headrace {
namespace {

// Pairs of samples, one by one.
double SlowCorrelation(const std::vector<std::uint32_t>& labels, std::uint64_t block) {
  double pairs = 0;
  double equal = 0;
  double mates = 0;
  double equal_mates = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const bool same = labels[i] == labels[k];
      pairs += 1;
      equal += same ? 1 : 0;
      if (i / block != k / block) continue;
      mates += 1;
      equal_mates += same ? 1 : 0;
    }
  }
  return (equal_mates / mates - equal / pairs) / (1 - equal / pairs);
}

TEST(LabelsTest, CorrelationIsThatOfAllPairs) {
  std::vector<std::uint32_t> labels;
  for (std::uint64_t s = 0; s < 211; ++s) {
    labels.push_back(static_cast<std::uint32_t>(Mix64(s / 5) % 7));
  }
  for (const std::uint64_t block : {2U, 5U, 8U, 100U}) {
    const auto blocks = MakeUniformBlocks(labels.size(), block);
    EXPECT_NEAR(IntraBlockCorrelation(labels, *blocks), SlowCorrelation(labels, block), 1e-12);
  }
}

TEST(LabelsTest, CorrelationIsOneWhereBlocksAreOfOneLabelAndNothingWithoutMates) {
  std::vector<std::uint32_t> sorted(1000);
  for (std::uint32_t s = 0; s < 1000; ++s) sorted[s] = s / 100;
  EXPECT_DOUBLE_EQ(IntraBlockCorrelation(sorted, *MakeUniformBlocks(1000, 50)), 1);
  EXPECT_EQ(IntraBlockCorrelation(sorted, *MakeUniformBlocks(1000, 1)), 0);
  EXPECT_EQ(IntraBlockCorrelation(std::vector<std::uint32_t>(1000), *MakeUniformBlocks(1000, 50)),
            0);
}

TEST(LabelsTest, CorrelationAsksForNoMemoryByTheSizeOfALabel) {
  std::vector<std::uint32_t> labels;
  std::vector<std::uint32_t> large;
  for (std::uint32_t s = 0; s < 300; ++s) {
    labels.push_back(s / 7 % 5);
    large.push_back(0xffff'ffff - 1'000'000 * labels.back());
  }
  const auto blocks = MakeUniformBlocks(labels.size(), 16);
  EXPECT_DOUBLE_EQ(IntraBlockCorrelation(large, *blocks), IntraBlockCorrelation(labels, *blocks));
}

// Samples with only a label, in the index itself.
class LabelIndex final : public Index {
 public:
  LabelIndex(std::uint64_t samples, DType dtype) : labels(samples) {
    fields_.push_back(
        {.name = "label", .kind = FieldKind::kArray, .dtype = dtype, .is_inline = true});
  }

  std::vector<std::int64_t> labels;

  [[nodiscard]] std::uint64_t sample_count() const override { return labels.size(); }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return fields_; }
  [[nodiscard]] std::uint64_t object_count() const override { return 0; }
  [[nodiscard]] std::uint64_t block_count() const override { return 0; }
  [[nodiscard]] const std::string& root() const override { return text_; }
  [[nodiscard]] const std::string& fingerprint() const override { return text_; }
  [[nodiscard]] std::span<const Attribute> attributes() const override { return {}; }
  [[nodiscard]] std::uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] Result<ObjectInfo> object(ObjectId /*id*/) const override { return None(); }
  [[nodiscard]] Result<BlockInfo> block(std::uint64_t /*position*/) const override {
    return None();
  }
  [[nodiscard]] Result<Extent> extent(std::size_t /*field*/, SampleId /*id*/) const override {
    return None();
  }
  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t /*field*/,
                                                                SampleId id) const override {
    return std::as_bytes(std::span(&labels[Raw(id)], 1));
  }
  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t /*field*/,
                                                      SampleId /*id*/) const override {
    return std::nullopt;
  }
  [[nodiscard]] Status VerifyAll() const override { return Status(); }

 private:
  static Status None() { return Status(StatusCode::kOutOfRange, "there is none"); }

  std::vector<FieldInfo> fields_;
  std::string text_;
};

TEST(LabelsTest, InlineLabelsAreNumberedByFirstAppearance) {
  LabelIndex index(10'000, DType::kInt64);
  std::vector<std::uint32_t> expected;
  for (std::uint64_t s = 0; s < index.sample_count(); ++s) {
    const std::uint64_t number = s < 3000 ? s : Mix64(s) % 3000;
    index.labels[s] = static_cast<std::int64_t>(Mix64(number) ^ 5);
    expected.push_back(static_cast<std::uint32_t>(number));
  }
  EXPECT_EQ(*InlineLabels(index).value(), expected);
}

TEST(LabelsTest, NumbersThatAreNoClassesAreNoLabels) {
  const LabelIndex measured(100, DType::kFloat64);
  EXPECT_EQ(InlineLabels(measured).value(), nullptr);
  LabelIndex all_different(kDifferentLabelsMax + 5000, DType::kInt64);
  std::iota(all_different.labels.begin(), all_different.labels.end(), -1000);
  EXPECT_EQ(InlineLabels(all_different).value(), nullptr);
  all_different.labels.resize(kDifferentLabelsMax);
  EXPECT_NE(InlineLabels(all_different).value(), nullptr);
}

OrderRequest Request(std::uint64_t samples, std::uint64_t block) {
  return {.job = {.sample_count = samples, .batch_size = 256, .epochs = 3},
          .blocks = MakeUniformBlocks(samples, block)};
}

std::optional<double> ExpectedSharing(std::string_view order, const OrderRequest& request) {
  const auto expected = ExpectedLabelInflation(*Orders().Find(order), request, nullptr);
  return expected.has_value() ? std::optional(expected->sharing) : std::nullopt;
}

TEST(LabelsTest, ExactAndBatchMixAllAndUnshuffledAndRedoxHaveNoClosedForm) {
  RegisterPapers();
  OrderRequest request = Request(1000, 10);
  EXPECT_EQ(ExpectedSharing("exact", request), 0.0);
  EXPECT_EQ(ExpectedSharing("batch", request), 0.0);
  EXPECT_EQ(ExpectedSharing("redox", request), std::nullopt);
  request.job.shuffle = false;
  EXPECT_EQ(ExpectedSharing("exact", request), std::nullopt);
  EXPECT_EQ(ExpectedLabelInflation(ExactOrderFactory(), request, nullptr), std::nullopt);
}

// The closed form against the order itself: of blocks, and of labels that blocks are sorted by.
TEST(LabelsTest, TheInflationOfEpochIsWhatIsMeasured) {
  constexpr std::uint64_t kSamples = 1 << 18;
#ifdef NDEBUG
  const std::vector<std::uint64_t> blocks = {1, 16, 128};
#else
  const std::vector<std::uint64_t> blocks = {16};
#endif
  for (const std::uint64_t block : blocks) {
    for (const std::int64_t permille : {30, 125}) {
      OrderRequest request = Request(kSamples, block);
      request.parameters["pool_bytes"] = static_cast<std::int64_t>(kSamples) * permille / 1000;
      const OrderFactory& factory = EpochOrderFactory();
      auto resolved = factory.Resolve(request);
      ASSERT_TRUE(resolved.ok()) << resolved.status().ToString();
      request.parameters = resolved.value();
      auto labels = std::make_shared<std::vector<std::uint32_t>>();
      for (std::uint64_t s = 0; s < kSamples; ++s) {
        labels->push_back(static_cast<std::uint32_t>(s * 64 / kSamples));
      }
      const auto expected = ExpectedLabelInflation(EpochOrderFactory(), request, labels);
      ASSERT_TRUE(expected.has_value());
      double measured[2] = {};
      double bounds[2] = {};
      for (const bool by_label : {false, true}) {
        auto meter = QualityMeter::Make({.sample_count = kSamples,
                                         .blocks = request.blocks,
                                         .labels = by_label ? labels : nullptr,
                                         .batch = 256});
        ASSERT_TRUE(meter.ok());
        auto order = factory.Make(request, {});
        ASSERT_TRUE(order.ok());
        while (const auto step = order.value()->Next()) {
          std::vector<std::uint64_t> ids;
          for (const Delivery& each : step->deliveries) ids.push_back(Raw(each.sample));
          if (step->epoch > 0) meter.value()->Add(ids);  // the first fill is different
          if (step->epoch > 0 && step->ends_epoch) meter.value()->EndEpoch();
        }
        const QualityReport report = meter.value()->Report();
        measured[by_label ? 1 : 0] = report.vif.at(256);
        const QualityTest* test = report.Find("vif_256");
        bounds[by_label ? 1 : 0] = (test->high - 1) * 3.3 / quality::NormalQuantile(1e-3 / 40);
      }
      const double of_blocks = std::max(0.1 * (expected->of_blocks - 1), bounds[0]);
      EXPECT_NEAR(measured[0], expected->of_blocks, of_blocks) << block << " " << permille;
      // A label is some 30 blocks, whose order is one draw: over ten seeds the measured inflation
      // has a standard deviation of a twentieth of what is expected (128 a block, 12.5 %).
      const double of_labels = std::max(0.1 * (*expected->of_labels - 1), bounds[1]) +
                               3.3 * 0.05 * (*expected->of_labels - 1);
      EXPECT_NEAR(measured[1], *expected->of_labels, of_labels) << block << " " << permille;
    }
  }
}

// Outside the closed form, with large blocks and pools: not above the measured value of a pool with
// a random victim, 131,072 samples in blocks of 1,024, batches of 128.
TEST(LabelsTest, LargeBlocksAndPoolsInflateNoMoreThanARandomVictimDoes) {
  constexpr std::uint64_t kSamples = 1 << 17;
  struct Row {
    std::int64_t joined_permille;
    double measured;
  };
  for (const Row& row : {Row{30, 18.5}, Row{125, 4.35}, Row{500, 1.33}}) {
    OrderRequest request = Request(kSamples, 1024);
    request.job.batch_size = 128;
    // Three quarters of a pool have joined, minus half a block that is filling.
    request.parameters["pool_bytes"] =
        static_cast<std::int64_t>(kSamples) * row.joined_permille * 4 / 3000 + 512;
    auto order = EpochOrderFactory().Make(request, {});
    ASSERT_TRUE(order.ok()) << order.status().ToString();
    auto meter = QualityMeter::Make(
        {.sample_count = kSamples, .blocks = request.blocks, .batch = 128, .windows = {128}});
    ASSERT_TRUE(meter.ok());
    while (const auto step = order.value()->Next()) {
      std::vector<std::uint64_t> ids;
      for (const Delivery& each : step->deliveries) ids.push_back(Raw(each.sample));
      if (step->epoch > 0) meter.value()->Add(ids);
      if (step->epoch > 0 && step->ends_epoch) meter.value()->EndEpoch();
    }
    EXPECT_LE(meter.value()->Report().vif.at(128), row.measured) << row.joined_permille;
  }
}

}  // namespace
}  // namespace headrace
