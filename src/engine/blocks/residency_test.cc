#include "engine/blocks/residency.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/widen_codec.h"
#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ResidencyTest : public ::testing::Test, public ResidencyClient {
 protected:
  void OnKept(std::span<KeptBytes> kept) override {
    for (KeptBytes& each : kept) kept_.push_back(std::move(each));
  }

  // Blocks of four samples, `cells` cells of one sample each.
  void Make(std::uint64_t cells) {
    cells_ = CellPool::Make(cells, 128).value();
    test_.options.block_gap_bytes = 0;
    test_.options.block_read_bytes_max = kMiB;
    blocks_ =
        std::make_unique<Residency>(test_.loop, BlockMemory{.residents = cells_}, nullptr, *this);
  }
  void Queue(std::uint64_t number, std::vector<std::uint32_t> kept = {}) {
    blocks_->Queue(
        {{.number = number, .first = SampleId{number * 4}, .count = 4, .kept = std::move(kept)}},
        {});
  }
  void ReadAll() {
    EXPECT_TRUE(blocks_->IssueReads().ok());
    test_.Run();
  }
  // What a row gets of a sample now.
  std::optional<KeptBytes> TakeFor(std::uint64_t sample, RowRef row) {
    KeptBytes kept{.row = row};
    return blocks_->Take(sample / 4, SampleId{sample}, kept) ? std::optional(kept) : std::nullopt;
  }
  // The bytes of one that was kept, whose cells go back.
  std::string Take(const KeptBytes& kept) {
    EXPECT_TRUE(kept.error.ok()) << kept.error.ToString();
    std::string text(kept.bytes, '?');
    cells_->CopyOut(kept.cells, 0, std::as_writable_bytes(std::span(text)));
    cells_->Release(kept.cells);
    return text;
  }
  std::string Payload(std::uint64_t sample) const {
    return test_.index.Payload(0, SampleId{sample});
  }

  LoopHarness test_;
  std::shared_ptr<CellPool> cells_;
  std::unique_ptr<Residency> blocks_;
  std::vector<KeptBytes> kept_;
};

TEST_F(ResidencyTest, WhatThePageCacheHoldsIsLeftThereForTheRows) {
  test_.storage.may_read_now = test_.storage.cached = true;
  test_.options.decode_task_bytes = 64 * kKiB;
  Make(4);
  Queue(0);
  Queue(1, {1, 2});
  EXPECT_FALSE(TakeFor(2, {.slot = 7}).has_value());
  ReadAll();
  EXPECT_THAT(test_.storage.read, IsEmpty());
  EXPECT_EQ(cells_->stats().used_units, 0U);
  EXPECT_EQ(blocks_->counts().left_in_storage, 2U);
  EXPECT_TRUE(blocks_->HaveCome(2));
  ASSERT_THAT(kept_, SizeIs(1));
  EXPECT_TRUE(kept_[0].in_storage);
  EXPECT_EQ(kept_[0].row.slot, 7U);
  for (const std::uint64_t sample : {0U, 1U, 3U, 5U}) {
    EXPECT_TRUE(TakeFor(sample, {}).value().in_storage);
  }
  blocks_->Drop({.block_read = 1, .sample = SampleId{6}});
}

TEST_F(ResidencyTest, BlocksOfNumbersToWidenAreLeftInThePageCacheToo) {
  using Kind = NumberType::Kind;
  test_.storage.may_read_now = test_.storage.cached = true;
  test_.options.decode_task_bytes = 64 * kKiB;
  test_.schema[0].codec =
      MakeWidenCodec({Kind::kUnsigned, 1}, {Kind::kSigned, 8}, LoopHarness::kSampleBytes).value();
  test_.schema[0].row_bytes = 8 * LoopHarness::kSampleBytes;
  Make(4);
  Queue(0);
  ReadAll();
  EXPECT_EQ(blocks_->counts().left_in_storage, 1U);
  EXPECT_TRUE(TakeFor(0, {}).value().in_storage);
  // Three times as far apart as they are long: the block lies in pieces.
  for (std::uint64_t i = 4; i < 8; ++i) test_.index.columns[0].extents[i].range.size = 33;
  Queue(1);
  ReadAll();
  EXPECT_EQ(blocks_->counts().left_in_storage, 1U);
  blocks_->ReleaseAll();
}

TEST_F(ResidencyTest, AfterASampleHasLeftThePageCacheBlocksAreReadForAWhile) {
  test_.storage.may_read_now = test_.storage.cached = true;
  test_.options.decode_task_bytes = 64 * kKiB;
  Make(4);
  blocks_->OnLeftCache();
  Queue(0);
  ReadAll();
  EXPECT_EQ(blocks_->counts().left_in_storage, 0U);
  for (std::uint64_t sample = 0; sample < 4; ++sample) {
    EXPECT_EQ(Take(TakeFor(sample, {}).value()), Payload(sample));
  }
}

TEST_F(ResidencyTest, RowsThatComeBeforeTheirBytesAreToldAndLaterOnesTakeThem) {
  Make(8);
  Queue(0);
  EXPECT_FALSE(TakeFor(2, {.slot = 7}).has_value());
  EXPECT_FALSE(blocks_->HaveCome(1));
  ReadAll();
  EXPECT_THAT(test_.storage.read, ElementsAre(ByteRange{0, 400})) << "the block is one read";
  ASSERT_THAT(kept_, SizeIs(1));
  EXPECT_EQ(kept_[0].row.slot, 7U);
  EXPECT_EQ(Take(kept_[0]), Payload(2));
  EXPECT_TRUE(blocks_->HaveCome(1));
  for (const std::uint64_t sample : {0U, 1U, 3U}) {
    EXPECT_EQ(Take(*TakeFor(sample, {})), Payload(sample));
  }
  EXPECT_EQ(cells_->stats().used_units, 0U);
  EXPECT_EQ(blocks_->counts().kept_bytes, 400U);
  EXPECT_TRUE(test_.inbox.idle());
}

TEST_F(ResidencyTest, ABlockReadWaitsForCells) {
  Make(4);
  Queue(0);
  Queue(1);
  ReadAll();
  EXPECT_EQ(blocks_->counts().reads, 1U);
  for (std::uint64_t sample = 0; sample < 4; ++sample) Take(*TakeFor(sample, {}));
  ReadAll();
  EXPECT_EQ(blocks_->counts().reads, 2U);
  EXPECT_EQ(Take(*TakeFor(5, {})), Payload(5));
  blocks_->ReleaseAll();
  EXPECT_EQ(cells_->stats().used_units, 0U);
}

TEST_F(ResidencyTest, OnlyKeptSamplesTakeCellsAndReleasedOnesGiveThemBack) {
  Make(4);
  Queue(0, {1, 3});
  ReadAll();
  EXPECT_EQ(cells_->stats().used_units, 2U);
  blocks_->Drop({.block_read = 0, .sample = SampleId{1}});
  EXPECT_EQ(cells_->stats().used_units, 1U);
  EXPECT_EQ(Take(*TakeFor(3, {})), Payload(3));
}

TEST_F(ResidencyTest, ASampleReleasedWhileItIsReadIsForgottenWhenItComes) {
  Make(4);
  Queue(0);
  test_.storage.holds = true;
  ReadAll();
  for (std::uint64_t sample = 0; sample < 4; ++sample) {
    blocks_->Drop({.block_read = 0, .sample = SampleId{sample}});
  }
  EXPECT_EQ(cells_->stats().used_units, 4U) << "the read goes to them";
  test_.storage.AnswerHeld();
  test_.Run();
  EXPECT_EQ(cells_->stats().used_units, 0U);
}

TEST_F(ResidencyTest, OneBrokenSampleOfAReadFailsAlone) {
  Make(8);
  Queue(0);
  test_.storage.broken = {100};
  test_.index.columns[0].checksums[3] = 0;
  for (std::uint32_t slot = 0; slot < 4; ++slot) (void)TakeFor(slot, {.slot = slot});
  ReadAll();
  ReadAll();
  ASSERT_THAT(kept_, SizeIs(4));
  for (const KeptBytes& kept : kept_) {
    if (kept.row.slot == 1) {
      EXPECT_EQ(kept.error.code(), StatusCode::kUnavailable);
    } else if (kept.row.slot == 3) {
      EXPECT_EQ(kept.error.code(), StatusCode::kDataLoss);
    } else {
      EXPECT_EQ(Take(kept), Payload(kept.row.slot));
    }
  }
  EXPECT_EQ(cells_->stats().used_units, 0U);
}

TEST_F(ResidencyTest, APlanThatNeedsMoreCellsThanThereAreIsAnError) {
  Make(3);
  Queue(0);
  const Status status = blocks_->IssueReads();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(
      status.message(),
      "planning block read 0: its samples take 4 cells of memory, the lane has 3; report this "
      "defect of headrace");
}

TEST_F(ResidencyTest, NothingIsToldOnceTheRunHasEnded) {
  Make(4);
  Queue(0);
  test_.storage.holds = true;
  (void)TakeFor(0, {});
  ReadAll();
  test_.loop.ended = true;
  test_.storage.AnswerHeld();
  test_.Run();
  EXPECT_THAT(kept_, IsEmpty());
  EXPECT_TRUE(test_.inbox.idle());
  blocks_->ReleaseAll();
  EXPECT_EQ(cells_->stats().used_units, 0U);
}

TEST_F(ResidencyTest, BytesInThePageCacheAreCopiedByTheTaskThatReadsThem) {
  Make(4);
  Queue(0);
  test_.storage.may_read_now = true;
  test_.storage.cached = true;
  ReadAll();
  EXPECT_THAT(test_.storage.read, IsEmpty());
  EXPECT_EQ(Take(*TakeFor(1, {})), Payload(1));
  EXPECT_EQ(test_.fetcher.stats().in_flight, 0U);
  blocks_->ReleaseAll();
}

}  // namespace
}  // namespace headrace
