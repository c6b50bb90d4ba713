#include "engine/rows/row_decoder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Copies, with scratch memory of `needs` bytes.
struct HungryCodec final : FieldCodec {
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t bytes) const override { return bytes; }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = needs;
    if (needs > limit.bytes_max) return Status(StatusCode::kResourceExhausted, "more");
    std::copy(encoded.begin(), encoded.end(), row.begin());
    return Status();
  }
  std::uint64_t needs = 0;
};

class RowDecoderTest : public ::testing::Test, public RowDecoderClient {
 protected:
  void InsertRow(DecodeTask& /*task*/, std::uint32_t slot,
                 std::vector<std::span<const std::byte>> /*parts*/) override {
    to_insert_.push_back(slot);
  }
  void OnDecoded(DecodeTask& task) override {
    tasks_.push_back(task.slots);
    for (const auto& [slot, status] : task.failures) failed_.emplace_back(slot, status.code());
    for (const auto& [slot, bytes] : task.large) decoder_->AddLarge({task.work, slot}, bytes);
    task.lease.Reset();
    decoder_->StartLarge();
  }

  // A part of a step whose bytes were read.
  std::unique_ptr<StepWork> Read(const std::vector<std::uint64_t>& samples) {
    auto work = test_.MakeWork(samples);
    const auto object = std::as_writable_bytes(std::span(test_.index.objects[0]));
    for (std::uint32_t slot = 0; slot < samples.size(); ++slot) {
      const ByteRange range = LoopHarness::ExtentOf(samples[slot]).range;
      auto read = std::make_unique<RowRead>();
      read->data = object.subspan(range.offset, range.size);
      work->pieces[slot] = {.read = read.get(), .size = range.size};
      work->reads.push_back(std::move(read));
    }
    return work;
  }
  void Make(DecodeParts parts) {
    test_.options.decode_task_bytes = 200;
    decoder_ = std::make_unique<RowDecoder>(test_.loop, queues_, std::move(parts), *this);
  }

  LoopHarness test_;
  LaneQueues queues_{{{.staging = test_.staging, .executor = &test_.executor}}, nullptr};
  std::unique_ptr<RowDecoder> decoder_;
  std::vector<std::vector<std::uint32_t>> tasks_;
  std::vector<std::pair<std::uint32_t, StatusCode>> failed_;
  std::vector<std::uint32_t> to_insert_;
};

TEST_F(RowDecoderTest, CutsRowsIntoTasksOfEnoughBytes) {
  Make({});
  const auto work = Read({5, 1, 2});
  decoder_->Submit(*work, std::vector<std::uint32_t>{0, 1, 2});
  EXPECT_THAT(tasks_, IsEmpty());
  test_.Run();
  EXPECT_THAT(tasks_, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_EQ(test_.RowOf(*work, 0), test_.index.Payload(0, SampleId{5}));
  EXPECT_EQ(test_.RowOf(*work, 2), test_.index.Payload(0, SampleId{2}));
  EXPECT_TRUE(test_.inbox.idle());
}

TEST_F(RowDecoderTest, SaysWhichRowsFailedAndAsksToInsertTheOthers) {
  Make({});
  const auto work = Read({0, 1});
  test_.index.columns[0].checksums[0] = 0;
  const auto tier = RamTier::Make(4096, 1024).value();
  for (SampleWork& row : work->samples) row.insert_into = tier.get();
  decoder_->Submit(*work, std::vector<std::uint32_t>{0, 1});
  test_.Run();
  EXPECT_THAT(failed_, ElementsAre(std::pair(0U, StatusCode::kDataLoss)));
  EXPECT_THAT(to_insert_, ElementsAre(1));
}

TEST_F(RowDecoderTest, LargeDecodesWaitForScratchMemoryTheOldestFirst) {
  auto codec = std::make_shared<HungryCodec>();
  codec->needs = 400;
  test_.schema[0].codec = codec;
  const auto scratch = ScratchBudget::Make({.capacity_bytes = 1000});
  Make({.scratch = scratch});
  const auto older = Read({3});
  const auto newer = Read({4});
  newer->deadline = 1;
  std::optional<ScratchLease> taken = scratch->Acquire(400);
  decoder_->Submit(*newer, std::vector<std::uint32_t>{0});
  test_.Run();
  decoder_->Submit(*older, std::vector<std::uint32_t>{0});
  test_.Run();
  EXPECT_EQ(tasks_.size(), 2U) << "both were left for later";
  EXPECT_EQ(test_.RowOf(*older, 0), std::string(100, '\0'));
  taken.reset();
  decoder_->StartLarge();
  EXPECT_TRUE(test_.executor.RunOne());
  EXPECT_EQ(test_.RowOf(*older, 0), test_.index.Payload(0, SampleId{3}));
  EXPECT_EQ(test_.RowOf(*newer, 0), std::string(100, '\0'));
  test_.Run();
  EXPECT_EQ(test_.RowOf(*newer, 0), test_.index.Payload(0, SampleId{4}));
  EXPECT_EQ(scratch->stats().large_count, 3U);
}

TEST_F(RowDecoderTest, ADecodeThatCanNeverHaveItsScratchMemoryIsAnErrorOfTheSample) {
  auto codec = std::make_shared<HungryCodec>();
  codec->needs = 5000;
  test_.schema[0].codec = codec;
  Make({.scratch = ScratchBudget::Make({.capacity_bytes = 1000})});
  const auto work = Read({3});
  decoder_->Submit(*work, std::vector<std::uint32_t>{0});
  test_.Run();
  EXPECT_THAT(failed_, ElementsAre(std::pair(0U, StatusCode::kInvalidArgument)));
}

}  // namespace
}  // namespace headrace
