#include "engine/rows/warm_rows.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/widen_codec.h"
#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class WarmRowsTest : public ::testing::Test, public WarmRowsClient {
 protected:
  WarmRowsTest() { test_.storage.may_read_now = test_.storage.cached = true; }

  void OnWarm(WarmTask& task) override {
    ++tasks_;
    done_.insert(done_.end(), task.slots.begin(), task.slots.end());
    missed_.insert(missed_.end(), task.missed.begin(), task.missed.end());
    for (const auto& [slot, status] : task.failures) failed_.emplace_back(slot, status.code());
    stored_bytes_ += task.stored_bytes;
    missed_bytes_ += task.missed_bytes;
  }

  // Tries the rows of a step that delivers `samples`, all of them.
  std::unique_ptr<StepWork> Try(const std::vector<std::uint64_t>& samples) {
    auto work = test_.MakeWork(samples);
    std::vector<std::uint32_t> slots(samples.size());
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) slots[slot] = slot;
    warm_.Try(*work, slots);
    EXPECT_EQ(work->samples_tried, samples.size());
    EXPECT_THAT(done_, IsEmpty()) << "a task reads";
    test_.Run();
    EXPECT_EQ(work->samples_tried, 0U);
    EXPECT_TRUE(test_.inbox.idle());
    EXPECT_THAT(test_.storage.read, IsEmpty());
    return work;
  }
  std::string Payload(std::uint64_t sample) const {
    return test_.index.Payload(0, SampleId{sample});
  }

  // Samples are numbers of one byte, of two in a row.
  void Widen() {
    using Kind = NumberType::Kind;
    BatchField& field = test_.schema[0];
    field.codec =
        MakeWidenCodec({Kind::kUnsigned, 1}, {Kind::kUnsigned, 2}, LoopHarness::kSampleBytes)
            .value();
    field.row_bytes = test_.row_bytes = 2 * LoopHarness::kSampleBytes;
  }
  // The numbers of a row, as they were stored.
  std::string WideRow(const StepWork& work, std::uint32_t slot) const {
    const std::string row = test_.RowOf(work, slot);
    std::string narrow;
    for (std::size_t at = 0; at < row.size(); at += 2) {
      EXPECT_EQ(row[at + 1], '\0');
      narrow.push_back(row[at]);
    }
    return narrow;
  }

  LoopHarness test_;
  LaneQueues queues_{{{.staging = test_.staging, .executor = &test_.executor}}, nullptr};
  WarmRows warm_{test_.loop, queues_, *this};
  int tasks_ = 0;
  std::vector<std::uint32_t> done_;
  std::vector<std::pair<std::uint32_t, bool>> missed_;
  std::vector<std::pair<std::uint32_t, StatusCode>> failed_;
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t missed_bytes_ = 0;
};

TEST_F(WarmRowsTest, GroupsOfRowsAreCopiedToTheirPlaces) {
  test_.options.decode_task_bytes = 50;  // a task takes four times that, here two rows
  const auto work = Try({6, 0, 2});
  EXPECT_EQ(tasks_, 2);
  EXPECT_THAT(done_, ElementsAre(0, 1, 2));
  EXPECT_EQ(test_.RowOf(*work, 0), Payload(6));
  EXPECT_EQ(test_.RowOf(*work, 1), Payload(0));
  EXPECT_EQ(test_.RowOf(*work, 2), Payload(2));
  EXPECT_EQ(stored_bytes_, 300U);
  EXPECT_EQ(work->issued_bytes, 300U);
  EXPECT_EQ(test_.staging->stats().used_bytes_peak, 0U);
}

TEST_F(WarmRowsTest, RowsThatAreNotHeldAreMissedAndOthersAreNot) {
  test_.options.decode_task_bytes = 1000;
  test_.storage.lacks = {200, 600};
  const auto work = Try({6, 0, 2, 1});
  EXPECT_THAT(done_, ElementsAre(1, 3));
  EXPECT_THAT(missed_, ElementsAre(Pair(0, true), Pair(2, true)));
  EXPECT_EQ(stored_bytes_, 200U);
  EXPECT_EQ(missed_bytes_, 200U);
  EXPECT_EQ(test_.RowOf(*work, 1), Payload(0));
  EXPECT_EQ(test_.RowOf(*work, 3), Payload(1));
}

TEST_F(WarmRowsTest, ADamagedRowFailsAlone) {
  test_.options.decode_task_bytes = 1000;
  test_.index.objects[0][250] ^= 1;
  Try({1, 2, 3});
  EXPECT_THAT(done_, ElementsAre(0, 1, 2));
  EXPECT_THAT(failed_, ElementsAre(Pair(1, StatusCode::kDataLoss)));
}

TEST_F(WarmRowsTest, WhatTheIndexGetsWrongIsMissed) {
  test_.options.decode_task_bytes = 1000;
  test_.index.columns[0].extents[2].range.size = 99;
  test_.index.columns[0].extents[3].range.size = 101;
  Try({1, 2, 3, 99});
  EXPECT_THAT(done_, ElementsAre(0));
  EXPECT_THAT(missed_, ElementsAre(Pair(1, false), Pair(2, false), Pair(3, false)));
}

TEST_F(WarmRowsTest, AStoppedRunReadsNothing) {
  auto work = test_.MakeWork({1, 2});
  warm_.Try(*work, std::vector<std::uint32_t>{0, 1});
  test_.stop.request_stop();
  test_.Run();
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_EQ(missed_.size(), 2U);
}

TEST_F(WarmRowsTest, TriesWhereTheSourceMayHaveBytesAndRowsCostACopy) {
  EXPECT_TRUE(warm_.MayTry());
  Widen();
  EXPECT_TRUE(warm_.MayTry());
  test_.schema[0].coding = Coding::kZstd;
  EXPECT_FALSE(warm_.MayTry());
  test_.schema[0].coding = Coding::kStored;
  test_.storage.may_read_now = false;
  EXPECT_FALSE(warm_.MayTry());
}

TEST_F(WarmRowsTest, NumbersAreWidenedIntoTheirRows) {
  Widen();
  test_.options.decode_task_bytes = 100;  // a task takes four times that, here two rows
  const auto work = Try({6, 0, 2});
  EXPECT_EQ(tasks_, 2);
  EXPECT_THAT(done_, ElementsAre(0, 1, 2));
  EXPECT_EQ(WideRow(*work, 0), Payload(6));
  EXPECT_EQ(WideRow(*work, 1), Payload(0));
  EXPECT_EQ(WideRow(*work, 2), Payload(2));
  EXPECT_EQ(stored_bytes_, 300U);
  EXPECT_EQ(missed_bytes_, 300U) << "of the rows, which are twice as long as what is stored";
  EXPECT_EQ(test_.staging->stats().used_bytes_peak, 0U);
}

TEST_F(WarmRowsTest, ADamagedRowOfNumbersFailsAlone) {
  Widen();
  test_.options.decode_task_bytes = 1000;
  test_.index.objects[0][250] ^= 1;
  const auto work = Try({1, 2, 3});
  EXPECT_THAT(failed_, ElementsAre(Pair(1, StatusCode::kDataLoss)));
  EXPECT_EQ(WideRow(*work, 2), Payload(3));
}

TEST_F(WarmRowsTest, NumbersThatAreNotHeldAreMissed) {
  Widen();
  test_.options.decode_task_bytes = 1000;
  test_.storage.lacks = {600};
  const auto work = Try({6, 0});
  EXPECT_THAT(done_, ElementsAre(1));
  EXPECT_THAT(missed_, ElementsAre(Pair(0, true)));
  EXPECT_EQ(WideRow(*work, 1), Payload(0));
}

// Rows of two fields: the samples, and 50 bytes that begin in the middle of each.
class WarmRowsOfTwoFieldsTest : public WarmRowsTest {
 protected:
  static constexpr std::uint64_t kHalf = LoopHarness::kSampleBytes / 2;

  WarmRowsOfTwoFieldsTest() {
    TableIndex::Column& halves = test_.index.columns.emplace_back();
    for (std::uint64_t i = 0; i < test_.index.samples; ++i) {
      halves.extents.push_back({ObjectId{0}, {i * LoopHarness::kSampleBytes + kHalf, kHalf}});
    }
    test_.index.infos.push_back({.name = "half"});
    test_.options.decode_task_bytes = 1000;
  }

  std::unique_ptr<StepWork> TryBoth(const std::vector<std::uint64_t>& samples) {
    auto work = test_.MakeWork(samples);
    halves_.resize(samples.size() * schema_[1].row_bytes);
    work->batch->fields.push_back({.packed = halves_});
    std::vector<std::uint32_t> slots(samples.size());
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) slots[slot] = slot;
    EXPECT_TRUE(both_.MayTry());
    both_.Try(*work, slots);
    test_.Run();
    return work;
  }
  std::string HalfOf(const StepWork& work, std::uint32_t slot) const {
    const std::span<std::byte> row = work.batch->row(schema_, 1, slot);
    return {reinterpret_cast<const char*>(row.data()), row.size()};
  }

  std::vector<BatchField> schema_ = {test_.schema[0],
                                     {.name = "half",
                                      .index_field = 1,
                                      .codec = MakeArrayCodec(kHalf),
                                      .shape = {kHalf},
                                      .row_bytes = kHalf}};
  std::vector<std::byte> halves_;
  StoredFields fields_{test_.index, schema_};
  LoopContext loop_{.options = test_.options,
                    .inbox = test_.inbox,
                    .executor = test_.executor,
                    .clock = test_.clock,
                    .fetcher = test_.fetcher,
                    .storage = test_.storage,
                    .staging = *test_.staging,
                    .fields = fields_,
                    .entry_form = test_.entry_form,
                    .verifier = test_.verifier,
                    .stop = test_.stop.get_token()};
  WarmRows both_{loop_, queues_, *this};
};

TEST_F(WarmRowsOfTwoFieldsTest, AllFieldsOfARowAreCopied) {
  const auto work = TryBoth({6, 2});
  EXPECT_THAT(done_, ElementsAre(0, 1));
  EXPECT_EQ(test_.RowOf(*work, 1), Payload(2));
  EXPECT_EQ(HalfOf(*work, 0), Payload(6).substr(50));
  EXPECT_EQ(HalfOf(*work, 1), Payload(2).substr(50));
  EXPECT_EQ(stored_bytes_, 300U);
}

TEST_F(WarmRowsOfTwoFieldsTest, ARowOfWhichOneFieldIsNotHeldIsMissed) {
  test_.storage.lacks = {650};
  test_.index.columns[1].extents[3].range.size = 49;
  const auto work = TryBoth({6, 2, 3});
  EXPECT_THAT(done_, ElementsAre(1));
  EXPECT_THAT(missed_, ElementsAre(Pair(0, true), Pair(2, false)));
  EXPECT_EQ(stored_bytes_, 150U);
}

}  // namespace
}  // namespace headrace
