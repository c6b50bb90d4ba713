#include "engine/rows/row_fetcher.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/block_map.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Wants nothing in any tier.
struct NothingPlaced final : Placement {
  std::optional<PlacedStep> Next() override { return std::nullopt; }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }
};

class RowFetcherTest : public ::testing::Test, public RowFetcherClient {
 protected:
  RowFetcherTest() {
    fetcher_.Connect(&filler_, nullptr);
    ram_->Insert(kSample, {std::as_bytes(std::span(payload_))},
                 [](const Status& status) { EXPECT_TRUE(status.ok()); });
  }
  void OnRead(StepWork& work, std::span<const std::uint32_t> slots) override {
    for (const std::uint32_t slot : slots) {
      const StoredPiece& piece = work.pieces[slot];
      if (piece.read == nullptr) {
        came_.emplace_back("entry");
        continue;
      }
      const std::span<std::byte> bytes = piece.read->data.subspan(piece.offset, piece.size);
      came_.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  void OnReadFailed(StepWork& /*work*/, std::uint32_t /*slot*/, Status status) override {
    failed_.push_back(status.code());
  }
  void DecodeNow(DecodeTask& /*task*/) override {}
  void OnDecoded(DecodeTask& /*task*/) override {}
  void OnInserted(RowRef /*row*/) override {}

  // Plans a row of the sample, which these sources have.
  void Plan(Tier::EntryRef entry, const std::optional<Holders>& nodes) {
    work_ = test_.MakeWork({Raw(kSample)});
    work_->batch->sources = {kNoTier};
    work_->samples[0].chain = SampleChain(std::move(entry), nodes);
    fetcher_.Plan(*work_);
    fetcher_.IssueReads();
  }
  // What came is damaged. Whether there is another source.
  bool Refuse() {
    const bool is_left = fetcher_.ReadFromNext(*work_, 0);
    fetcher_.IssueReads();
    return is_left;
  }

  static constexpr SampleId kSample{3};

  LoopHarness test_;
  const std::string payload_ = test_.index.Payload(0, kSample);
  LaneQueues queues_{{{.staging = test_.staging, .executor = &test_.executor}}, nullptr};
  const std::unique_ptr<RamTier> ram_ = RamTier::Make(4096, 1024).value();
  TierCache cache_{{ram_.get()}, MakeUniformBlocks(8, 1), std::make_unique<NothingPlaced>(), {}};
  RowFetcher fetcher_{test_.loop, queues_, nullptr, *this};
  TierFiller filler_{test_.loop, cache_, nullptr, fetcher_};
  std::unique_ptr<StepWork> work_;
  std::vector<std::string> came_;
  std::vector<StatusCode> failed_;
};

TEST_F(RowFetcherTest, EachSourceThatGivesDamagedBytesIsFollowedByTheNext) {
  Plan(ram_->Find(kSample), Holders{.first = 1});
  EXPECT_THAT(came_, ElementsAre("entry"));
  EXPECT_EQ(work_->batch->sources[0], 0U);
  EXPECT_TRUE(Refuse());
  EXPECT_THAT(test_.nodes.asked, ElementsAre(std::pair(1U, Raw(kSample))));
  EXPECT_THAT(came_, ElementsAre("entry", payload_));
  EXPECT_EQ(work_->batch->sources[0], kFromNode);
  EXPECT_THAT(test_.storage.read, IsEmpty());
  EXPECT_TRUE(Refuse());
  EXPECT_THAT(test_.storage.read, ElementsAre(LoopHarness::ExtentOf(3).range));
  EXPECT_THAT(came_, ElementsAre("entry", payload_, payload_));
  EXPECT_EQ(work_->batch->sources[0], kNoTier);
  EXPECT_FALSE(Refuse()) << "storage is the last";
  EXPECT_EQ(test_.staging->stats().used_bytes, 0U);
  EXPECT_EQ(filler_.counts().fallbacks, 1U);
  EXPECT_EQ(filler_.counts().node_fallbacks, 1U);
  EXPECT_EQ(filler_.counts().node_uses, 1U);
}

TEST_F(RowFetcherTest, TheErrorOfASourceIsDroppedIfAnotherFollows) {
  test_.nodes.lost = {Raw(kSample)};
  Plan({}, Holders{.first = 1});
  EXPECT_EQ(test_.nodes.asked.size(), 1U);
  fetcher_.IssueReads();
  EXPECT_THAT(came_, ElementsAre(payload_));
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(RowFetcherTest, TheErrorOfStorageIsTheRows) {
  test_.nodes.lost = {Raw(kSample)};
  test_.storage.broken = {Raw(kSample) * LoopHarness::kSampleBytes};
  Plan({}, Holders{.first = 1});
  fetcher_.IssueReads();
  EXPECT_THAT(came_, IsEmpty());
  EXPECT_THAT(failed_, ElementsAre(StatusCode::kUnavailable));
}

TEST_F(RowFetcherTest, DamagedBytesThatJobsShareAreReadFromStorageItself) {
  test_.storage.shared = true;
  Plan({}, {});
  EXPECT_THAT(test_.storage.read_past_share, IsEmpty());
  EXPECT_TRUE(Refuse());
  EXPECT_THAT(test_.storage.read_past_share, ElementsAre(LoopHarness::ExtentOf(3).range));
  EXPECT_THAT(came_, ElementsAre(payload_, payload_));
  EXPECT_FALSE(Refuse());
  EXPECT_EQ(filler_.counts().fallbacks, 0U);
}

TEST_F(RowFetcherTest, AnErrorOfSharedReadsIsTheRows) {
  test_.storage.shared = true;
  test_.storage.broken = {Raw(kSample) * LoopHarness::kSampleBytes};
  Plan({}, {});
  fetcher_.IssueReads();
  EXPECT_EQ(test_.storage.read.size(), 1U) << "another try would end alike";
  EXPECT_THAT(failed_, ElementsAre(StatusCode::kUnavailable));
}

TEST_F(RowFetcherTest, AnEntryOfAnotherSizeIsNotTheSamples) {
  const std::string other = payload_ + "!";
  ram_->Erase(kSample);
  ram_->Insert(kSample, {std::as_bytes(std::span(other))},
               [](const Status& status) { EXPECT_TRUE(status.ok()); });
  Plan(ram_->Find(kSample), {});
  EXPECT_THAT(came_, ElementsAre(payload_));
  EXPECT_FALSE(ram_->Find(kSample));
}

TEST_F(RowFetcherTest, OnceTheRunHasEndedThereIsNoNextSource) {
  Plan(ram_->Find(kSample), Holders{.first = 1});
  test_.loop.ended = true;
  EXPECT_FALSE(Refuse());
  EXPECT_THAT(test_.nodes.asked, IsEmpty());
  EXPECT_THAT(test_.storage.read, IsEmpty());
}

}  // namespace
}  // namespace headrace
