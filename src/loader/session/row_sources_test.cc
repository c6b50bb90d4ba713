#include "loader/session/row_sources.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "loader/config/resolved_order.h"
#include "loader/config/schema.h"

namespace headrace {
namespace {

// Six samples of 10 bytes in one object, with a label in the index; three batches of two ranks.
class RowSourcesTest : public ::testing::Test {
 protected:
  RowSourcesTest() {
    auto index = std::make_shared<TableIndex>();
    index->samples = 6;
    index->objects.emplace_back(60, 'x');
    TableIndex::Column& bytes = index->columns.emplace_back();
    bytes.info = {.name = "bytes", .kind = FieldKind::kBytes};
    for (std::uint64_t id = 0; id < 6; ++id) bytes.extents.push_back({ObjectId{0}, {id * 10, 10}});
    index->infos = {
        bytes.info,
        {.name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true}};
    index_ = index;
    schema_ = MakeSchema(*index_, {}).value();
    const OrderOptions job{.sample_count = 6,
                           .batch_size = 1,
                           .world_size = 2,
                           .ranks = 2,
                           .shuffle = false,
                           .epochs = 2};
    order_ = std::make_shared<ResolvedOrder>(
        ResolvedOrder::Make(index_, job, {.name = "exact"}).value());
    EXPECT_TRUE(order_->Settle(0).ok());
    sources_ = std::make_unique<RowSources>(index_, schema_, order_, nullptr);
  }

  std::shared_ptr<const Index> index_;
  std::vector<BatchField> schema_;
  std::shared_ptr<ResolvedOrder> order_;
  std::unique_ptr<RowSources> sources_;
};

TEST_F(RowSourcesTest, TheRowsOfAStepAreThoseOfOneLane) {
  const auto rows = sources_->OfStep({.step = 2}, /*lane=*/1);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  ASSERT_EQ(rows.value().size(), 2U);
  const PlannedRow& bytes = rows.value()[0];
  EXPECT_EQ(bytes.slot, 0U);
  EXPECT_EQ(bytes.sample, SampleId{5});
  EXPECT_EQ(bytes.field, "bytes");
  EXPECT_EQ(bytes.source, "storage");
  EXPECT_EQ(bytes.actual, "");
  EXPECT_EQ(bytes.object, "/a");
  EXPECT_EQ(bytes.range, (ByteRange{.offset = 50, .size = 10}));
  EXPECT_EQ(rows.value()[1].field, "label");
  EXPECT_EQ(rows.value()[1].source, "index");
}

TEST_F(RowSourcesTest, SamplesThatSomebodyElseOrderedComeInTheirOrder) {
  const auto rows =
      sources_->OfSamples(std::vector<SampleId>{SampleId{4}, SampleId{4}, SampleId{0}});
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  std::vector<std::pair<std::uint32_t, std::uint64_t>> slots;
  for (const PlannedRow& row : rows.value()) {
    if (row.field == "bytes") slots.emplace_back(row.slot, row.range.offset);
  }
  EXPECT_EQ(slots,
            (std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, 40}, {1, 40}, {2, 0}}));
}

TEST_F(RowSourcesTest, SamplesAndStepsThatAreNotThereAreErrors) {
  EXPECT_EQ(sources_->OfSamples(std::vector<SampleId>{SampleId{6}}).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_FALSE(sources_->OfStep({.step = 3}, 0).ok());
  EXPECT_EQ(sources_->OfStep({.epoch = 2}, 0).status().ToString(),
            "OutOfRange: epoch 2 step 0: the plan ends before it");
}

}  // namespace
}  // namespace headrace
