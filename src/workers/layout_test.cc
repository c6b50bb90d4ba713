#include "workers/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LeafShape Floats(std::vector<std::uint64_t> dims, std::uint64_t rank) {
  return {.dtype = "float32", .item_bytes = 4, .rank = rank, .dims = std::move(dims)};
}

LeafShape Object() { return {.object = true}; }

TaskShapes TaskOf(std::uint64_t first_slot, std::uint64_t rows, std::vector<LeafShape> leaves,
                  std::string tree = "t") {
  return {
      .first_slot = first_slot, .rows = rows, .tree = std::move(tree), .leaves = std::move(leaves)};
}

TEST(LayoutTest, RowsOfOneShapeLieOneAfterTheOther) {
  const std::vector<TaskShapes> tasks = {TaskOf(0, 3, {Floats({5}, 1), Floats({}, 0)}),
                                         TaskOf(3, 2, {Floats({5}, 1), Floats({}, 0)})};
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(MakeOutputLayout(tasks, RaggedRows::kError, layout, mismatch));
  EXPECT_EQ(layout.rows, 5U);
  EXPECT_TRUE(layout.is_plain());
  ASSERT_EQ(layout.leaves.size(), 2U);
  EXPECT_EQ(layout.leaves[0].offset, 0U);
  EXPECT_EQ(layout.leaves[0].row_bytes(), 20U);
  EXPECT_EQ(layout.leaves[1].offset, 128U);  // 100 bytes, aligned
  EXPECT_EQ(layout.leaves[1].row_bytes(), 4U);
  EXPECT_EQ(layout.bytes, 148U);
}

TEST(LayoutTest, AnotherNumberOfRowsIsLaidOutTheSameWay) {
  const std::vector<TaskShapes> tasks = {
      TaskOf(0, 5, {Floats({5}, 1), Object(), Floats({2, 2}, 2)})};
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(MakeOutputLayout(tasks, RaggedRows::kError, layout, mismatch));
  const OutputLayout smaller = layout.ForRows(1);
  EXPECT_EQ(smaller.rows, 1U);
  EXPECT_EQ(smaller.leaves[2].offset, 64U);
  EXPECT_EQ(smaller.bytes, 80U);
  EXPECT_EQ(layout.ForRows(5).bytes, layout.bytes);
}

TEST(LayoutTest, WhatWasWrittenInAPlainLayoutLooksAsItDid) {
  const std::vector<TaskShapes> tasks = {TaskOf(0, 5, {Floats({5}, 1), Object()})};
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(MakeOutputLayout(tasks, RaggedRows::kError, layout, mismatch));
  const std::vector<TaskShapes> again = {ShapesOf(layout, 0, 2), ShapesOf(layout, 2, 3)};
  OutputLayout other;
  ASSERT_TRUE(MakeOutputLayout(again, RaggedRows::kError, other, mismatch));
  EXPECT_EQ(other.bytes, layout.bytes);
  EXPECT_EQ(other.leaves[1].kind, OutputLeaf::Kind::kObject);
}

TEST(LayoutTest, ARowOfAnotherShapeIsNamedByItsSlot) {
  const std::vector<TaskShapes> tasks = {TaskOf(0, 3, {Floats({5}, 1)}),
                                         TaskOf(3, 2, {Floats({5, 6}, 1)})};
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_FALSE(MakeOutputLayout(tasks, RaggedRows::kError, layout, mismatch));
  EXPECT_EQ(mismatch.slot, 4U);
  EXPECT_THAT(mismatch.text, HasSubstr("float32 (6,), that of the first sample float32 (5,)"));
}

TEST(LayoutTest, AnotherDtypeRankOrTreeIsNamedByItsTask) {
  LeafShape doubles = Floats({5}, 1);
  doubles.dtype = "float64";
  const std::vector<std::vector<TaskShapes>> cases = {
      {TaskOf(0, 3, {Floats({5}, 1)}), TaskOf(3, 2, {doubles})},
      {TaskOf(0, 3, {Floats({5}, 1)}), TaskOf(3, 2, {Floats({5, 1}, 2)})},
      {TaskOf(0, 3, {Floats({5}, 1)}), TaskOf(3, 2, {Object()})},
      {TaskOf(0, 3, {Floats({5}, 1)}), TaskOf(3, 2, {Floats({5}, 1)}, "u")},
      {TaskOf(0, 3, {Floats({5}, 1)}), TaskOf(3, 2, {Floats({5}, 1), Floats({5}, 1)})}};
  for (const RaggedRows ragged : {RaggedRows::kError, RaggedRows::kPad, RaggedRows::kList}) {
    for (const std::vector<TaskShapes>& tasks : cases) {
      OutputLayout layout;
      ShapeMismatch mismatch;
      EXPECT_FALSE(MakeOutputLayout(tasks, ragged, layout, mismatch));
      EXPECT_EQ(mismatch.slot, 3U);
    }
  }
}

TEST(LayoutTest, PaddedRowsHaveRoomForTheLargestOfEachDimension) {
  const std::vector<TaskShapes> tasks = {TaskOf(0, 2, {Floats({1, 7, 2, 3}, 2)}),
                                         TaskOf(2, 1, {Floats({4, 1}, 2)})};
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(MakeOutputLayout(tasks, RaggedRows::kPad, layout, mismatch));
  EXPECT_FALSE(layout.is_plain());
  EXPECT_THAT(layout.leaves[0].dims, ElementsAre(4, 7));
  EXPECT_THAT(layout.leaves[0].row_dims, ElementsAre(1, 7, 2, 3, 4, 1));
  EXPECT_EQ(layout.bytes, 3U * 4 * 7 * 4);
}

TEST(LayoutTest, RowsOfAListEachHaveTheirPlace) {
  const std::vector<TaskShapes> tasks = {TaskOf(0, 2, {Floats({1, 20}, 1), Floats({}, 0)}),
                                         TaskOf(2, 1, {Floats({3}, 1), Floats({}, 0)})};
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(MakeOutputLayout(tasks, RaggedRows::kList, layout, mismatch));
  EXPECT_THAT(layout.leaves[0].row_offsets, ElementsAre(0, 64, 192));
  EXPECT_EQ(layout.leaves[1].kind, OutputLeaf::Kind::kRows);  // Numbers do not differ in shape.
  EXPECT_EQ(layout.leaves[1].offset, 256U);
}

TEST(LayoutTest, AShapeWhoseBytesOverflowIsRefused) {
  const std::uint64_t huge = std::uint64_t{1} << 33;
  for (const RaggedRows ragged : {RaggedRows::kError, RaggedRows::kPad, RaggedRows::kList}) {
    const std::vector<TaskShapes> tasks = {TaskOf(0, 2, {Floats({huge, huge}, 2)})};
    OutputLayout layout;
    ShapeMismatch mismatch;
    ASSERT_FALSE(MakeOutputLayout(tasks, ragged, layout, mismatch));
    EXPECT_THAT(mismatch.text, HasSubstr("4 TiB"));
  }
}

}  // namespace
}  // namespace headrace
