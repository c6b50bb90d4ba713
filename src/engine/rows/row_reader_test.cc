#include "engine/rows/row_reader.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tier/ram_tier.h"
#include "tier/tier.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class RowReaderTest : public ::testing::Test, public RowReaderClient {
 protected:
  RowReaderTest() {
    test_.options = {
        .coalesce_gap_bytes = 150, .coalesce_bytes_max = 300, .decode_task_bytes = 250};
  }

  void OnRead(StepWork& /*work*/, std::span<const std::uint32_t> slots) override {
    read_.insert(read_.end(), slots.begin(), slots.end());
  }
  void OnReadFailed(StepWork& /*work*/, std::uint32_t slot, Status status) override {
    failed_.emplace_back(slot, status.code());
  }
  void DecodeNow(DecodeTask& task) override {
    for (const std::uint32_t slot : task.slots) decoded_.push_back(Bytes(*task.work, slot));
    task.large = std::exchange(large_, {});
  }
  void OnDecoded(DecodeTask& task) override {
    read_.insert(read_.end(), task.slots.begin(), task.slots.end());
  }

  // Plans the reads of all rows.
  void Plan(StepWork& work) {
    std::vector<RowReader::Piece> pieces;
    for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
      pieces.emplace_back(LoopHarness::ExtentOf(Raw(work.batch->samples[slot])), PieceRef{slot, 0});
      work.samples[slot].pieces_left = 1;
    }
    for (RowRead* const read : reader_.MakeReads(work, pieces)) queues_.AddReads(work, {read});
  }
  static std::string Bytes(const StepWork& work, std::uint32_t slot) {
    const StoredPiece& piece = work.pieces[slot];
    return {reinterpret_cast<const char*>(piece.read->data.data()) + piece.offset, piece.size};
  }
  std::string Payload(std::uint64_t sample) const {
    return test_.index.Payload(0, SampleId{sample});
  }

  LoopHarness test_;
  LaneQueues queues_{{{.staging = test_.staging, .executor = &test_.executor}}, nullptr};
  RowReader reader_{test_.loop, queues_, *this};
  std::vector<std::uint32_t> read_;
  std::vector<std::pair<std::uint32_t, StatusCode>> failed_;
  std::vector<std::string> decoded_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> large_;
};

TEST_F(RowReaderTest, SamplesNearEachOtherAreOneRead) {
  const auto work = test_.MakeWork({6, 0, 2});
  Plan(*work);
  reader_.Issue();
  EXPECT_THAT(test_.storage.read, ElementsAre(ByteRange{0, 300}, ByteRange{600, 100}));
  EXPECT_THAT(read_, ElementsAre(1, 2, 0));
  EXPECT_EQ(Bytes(*work, 0), Payload(6));
  EXPECT_EQ(Bytes(*work, 2), Payload(2));
  EXPECT_EQ(work->samples_unread, 0U);
  EXPECT_TRUE(queues_.nothing_to_read());
  EXPECT_TRUE(test_.inbox.idle());
}

TEST_F(RowReaderTest, OfAJoinedReadThatFailsOnlyTheBrokenSampleIsLost) {
  const auto work = test_.MakeWork({0, 1, 2});
  Plan(*work);
  test_.storage.broken = {100};
  reader_.Issue();
  EXPECT_THAT(read_, IsEmpty());
  reader_.Issue();
  EXPECT_THAT(read_, UnorderedElementsAre(0, 2));
  EXPECT_THAT(failed_, ElementsAre(std::pair(1U, StatusCode::kUnavailable)));
}

TEST_F(RowReaderTest, ReadsWaitForStagingMemory) {
  const auto work = test_.MakeWork({0, 4});
  Plan(*work);
  std::optional<Buffer> taken = test_.staging->Acquire(64 * kMiB);
  reader_.Issue();
  EXPECT_THAT(test_.storage.read, IsEmpty());
  taken.reset();
  reader_.Issue();
  EXPECT_THAT(read_, ElementsAre(0, 1));
}

TEST_F(RowReaderTest, WhatThePageCacheHasIsDecodedByTheTaskThatReadsIt) {
  test_.storage.may_read_now = test_.storage.cached = true;
  const auto work = test_.MakeWork({0, 4});
  Plan(*work);
  reader_.Issue();
  EXPECT_THAT(read_, IsEmpty()) << "a task reads";
  EXPECT_EQ(test_.fetcher.stats().in_flight, 2U);
  test_.Run();
  EXPECT_THAT(decoded_, ElementsAre(Payload(0), Payload(4)));
  EXPECT_THAT(read_, ElementsAre(0, 1));
  EXPECT_EQ(test_.fetcher.stats().in_flight, 0U);
  EXPECT_EQ(work->samples_unread, 0U);
  EXPECT_EQ(test_.staging->stats().used_bytes_peak, 0U) << "straight into the rows";
}

TEST_F(RowReaderTest, WhatItHasNotIsReadAheadOfOthers) {
  test_.storage.may_read_now = true;
  const auto work = test_.MakeWork({0, 4});
  Plan(*work);
  reader_.Issue();
  test_.Run();
  EXPECT_THAT(decoded_, IsEmpty());
  EXPECT_FALSE(queues_.nothing_to_read());
  reader_.Issue();
  EXPECT_THAT(read_, UnorderedElementsAre(0, 1));
  EXPECT_EQ(test_.fetcher.stats().reads, 2U) << "each counted once";
}

TEST_F(RowReaderTest, ARowLeftForLaterIsReadAgainIntoStagingMemory) {
  test_.storage.may_read_now = test_.storage.cached = true;
  const auto work = test_.MakeWork({0});
  Plan(*work);
  large_ = {{0, 5000}};
  reader_.Issue();
  test_.Run();
  EXPECT_THAT(read_, IsEmpty());
  reader_.Issue();
  test_.Run();
  EXPECT_THAT(read_, ElementsAre(0));
  EXPECT_GT(test_.staging->stats().used_bytes, 0U);
}

TEST_F(RowReaderTest, AnEntryOfATierIsOneRead) {
  const auto ram = RamTier::Make(4096, 1024).value();
  ram->Insert(SampleId{3}, {std::as_bytes(std::span("an entry", 8))},
              [](const Status& status) { EXPECT_TRUE(status.ok()); });
  const auto work = test_.MakeWork({3});
  work->samples[0].chain = SampleChain(ram->Find(SampleId{3}), {});
  work->pieces[0].size = 8;
  queues_.AddReads(*work, {reader_.MakeEntryRead(*work, 0)});
  reader_.Issue();
  EXPECT_THAT(read_, ElementsAre(0));
  EXPECT_EQ(Bytes(*work, 0), "an entry");
  EXPECT_TRUE(work->pieces[0].read->checked);
  work->reads.clear();
  work->samples[0].chain.Reset();
}

}  // namespace
}  // namespace headrace
