#include "engine/tiers/entry_form.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "codec/codec.h"
#include "codec/decoded_form.h"
#include "engine/testing/loop_harness.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Decoded, each byte stands twice; needs `scratch` bytes for that.
class DoublingCodec final : public FieldCodec, public DecodedForm {
 public:
  explicit DoublingCodec(std::uint64_t scratch) : scratch_(scratch) {}
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t encoded_bytes) const override {
    return encoded_bytes;
  }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& /*limit*/) const override {
    std::memcpy(row.data(), encoded.data(), row.size());
    return {};
  }
  [[nodiscard]] const DecodedForm* decoded_form() const override { return this; }
  Status MakeForm(std::span<const std::byte> encoded, std::span<std::byte> form,
                  ScratchLimit& limit) const override {
    limit.bytes_needed = scratch_;
    if (limit.bytes_needed > limit.bytes_max) {
      return Status(StatusCode::kResourceExhausted, "scratch");
    }
    if (form.size() != 2 * encoded.size()) return Status(StatusCode::kFailedPrecondition, "size");
    for (std::size_t i = 0; i < form.size(); ++i) form[i] = encoded[i / 2];
    return {};
  }
  Status DecodeForm(std::span<const std::byte> form, const SampleKey& /*key*/,
                    std::span<std::byte> row, ScratchLimit& /*limit*/) const override {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = form[2 * i];
    return {};
  }

 private:
  const std::uint64_t scratch_;
};

class EntryFormTest : public ::testing::Test {
 protected:
  // Of samples 0 and 1, of which the second stays as stored.
  EntryForm Make(std::uint64_t scratch_needed = 0, std::uint64_t budget = 64 * kMiB) {
    test_.schema[0].codec = std::make_shared<DoublingCodec>(scratch_needed);
    auto table = std::make_shared<std::vector<std::uint32_t>>(test_.index.sample_count(), 0U);
    table->front() = 2 * LoopHarness::kSampleBytes;
    budget_ = ScratchBudget::Make({.capacity_bytes = budget, .threads = 1});
    return {test_.fields, table, budget_};
  }
  std::vector<std::span<const std::byte>> Parts() { return {std::as_bytes(std::span(stored_))}; }

  LoopHarness test_;
  std::string stored_ = std::string(LoopHarness::kSampleBytes, 'a');
  std::shared_ptr<ScratchBudget> budget_;
};

TEST_F(EntryFormTest, OnlyWhatTheTableSaysIsDecoded) {
  const EntryForm form = Make();
  EXPECT_EQ(form.DecodedBytes(SampleId{0}, 0), 2 * LoopHarness::kSampleBytes);
  EXPECT_EQ(form.DecodedBytes(SampleId{1}, 0), std::nullopt);
  auto parts = Parts();
  const std::uint64_t before = budget_->stats().used_bytes;
  {
    const auto memory = form.Make(SampleId{0}, parts);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(parts[0].size(), 2 * LoopHarness::kSampleBytes);
    EXPECT_EQ(parts[0].data(), memory.value().form().data());
    EXPECT_EQ(budget_->stats().used_bytes, before + 2 * LoopHarness::kSampleBytes);
  }
  EXPECT_EQ(budget_->stats().used_bytes, before);
  parts = Parts();
  ASSERT_TRUE(form.Make(SampleId{1}, parts).ok());
  EXPECT_EQ(parts[0].size(), LoopHarness::kSampleBytes);
}

TEST_F(EntryFormTest, WithoutATableEverythingIsStored) {
  const EntryForm form(test_.fields, nullptr, nullptr);
  EXPECT_EQ(form.DecodedBytes(SampleId{0}, 0), std::nullopt);
  auto parts = Parts();
  ASSERT_TRUE(form.Make(SampleId{0}, parts).ok());
  EXPECT_EQ(parts[0].data(), std::as_bytes(std::span(stored_)).data());
}

TEST_F(EntryFormTest, ALargeDecodeTakesItsMemoryFromTheBudgetOrIsLeft) {
  const EntryForm form = Make(5 * kMiB, 16 * kMiB);
  auto parts = Parts();
  {
    const auto memory = form.Make(SampleId{0}, parts);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    EXPECT_EQ(memory.value().lease.bytes(), 2 * LoopHarness::kSampleBytes + 5 * kMiB);
  }
  const auto others = budget_->Acquire(12 * kMiB);
  ASSERT_TRUE(others.has_value());
  parts = Parts();
  EXPECT_EQ(form.Make(SampleId{0}, parts).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(parts[0].size(), LoopHarness::kSampleBytes);
}

TEST_F(EntryFormTest, ASizeThatIsNotThatOfTheTableIsNotKept) {
  const EntryForm form = Make();
  stored_.resize(LoopHarness::kSampleBytes - 1);
  auto parts = Parts();
  EXPECT_EQ(form.Make(SampleId{0}, parts).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace
