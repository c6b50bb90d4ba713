#include "loader/session/retained_tiers.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace headrace {
namespace {

// A tier of a given capacity, without entries, that says when it is destroyed.
class EmptyTier final : public Tier {
 public:
  explicit EmptyTier(std::uint64_t capacity_bytes, std::function<void()> destroyed = nullptr)
      : capacity_bytes_(capacity_bytes), destroyed_(std::move(destroyed)) {}
  ~EmptyTier() override {
    if (destroyed_) destroyed_();
  }
  EmptyTier(const EmptyTier&) = delete;
  EmptyTier& operator=(const EmptyTier&) = delete;

  [[nodiscard]] std::string name() const override { return "empty"; }
  [[nodiscard]] bool in_memory() const override { return true; }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return 1; }
  [[nodiscard]] EntryRef Find(SampleId /*sample*/) override { return {}; }
  [[nodiscard]] std::optional<std::span<const std::byte>> View(
      const EntryRef& /*ref*/, std::uint64_t /*offset*/, std::uint64_t /*size*/) const override {
    return std::nullopt;
  }
  void CopyOut(const EntryRef& /*ref*/, std::uint64_t /*offset*/,
               std::span<std::byte> /*to*/) const override {}
  Result<std::uint64_t> Check(const EntryRef& /*ref*/) override { return 0; }
  [[nodiscard]] std::size_t BufferBytes(const EntryRef& /*ref*/) const override { return 0; }
  void Read(const EntryRef& /*ref*/, std::uint64_t /*deadline*/, std::span<std::byte> buffer,
            std::stop_token /*stop*/, DoneRead done) override {
    done(buffer);
  }
  void Insert(SampleId /*sample*/, std::vector<std::span<const std::byte>> /*parts*/,
              Done done) override {
    done(Status(StatusCode::kResourceExhausted, "there is no room"));
  }
  void Erase(SampleId /*sample*/) override {}
  [[nodiscard]] std::vector<SampleId> Held() const override { return {}; }
  [[nodiscard]] TierStats stats() const override { return {.capacity_bytes = capacity_bytes_}; }

 protected:
  void ReleaseRef(void* /*entry*/) override {}

 private:
  const std::uint64_t capacity_bytes_;
  const std::function<void()> destroyed_;
};

TEST(RetainedTiersTest, TheOldestAreDroppedForThoseThatFollow) {
  RetainedTiers retained(100);
  retained.Put("a", std::make_unique<EmptyTier>(40));
  retained.Put("b", std::make_unique<EmptyTier>(40));
  retained.Put("c", std::make_unique<EmptyTier>(60));
  EXPECT_EQ(retained.bytes(), 100U);
  EXPECT_EQ(retained.Take("a"), nullptr);
  EXPECT_NE(retained.Take("b"), nullptr);
  EXPECT_EQ(retained.Take("b"), nullptr) << "it was taken";
  EXPECT_EQ(retained.bytes(), 60U);
  retained.ShrinkTo(59);
  EXPECT_EQ(retained.bytes(), 0U);
}

TEST(RetainedTiersTest, ATierLargerThanTheLimitDropsNone) {
  RetainedTiers retained(100);
  retained.Put("a", std::make_unique<EmptyTier>(40));
  retained.Put("b", std::make_unique<EmptyTier>(101));
  EXPECT_EQ(retained.bytes(), 40U);
  EXPECT_EQ(retained.Take("b"), nullptr);
}

// Destroying a tier takes its time, in which other sessions end.
TEST(RetainedTiersTest, ATierThatIsPutWhileAnotherIsDroppedDoesNotExceedTheLimit) {
  RetainedTiers retained(100);
  retained.Put("a", std::make_unique<EmptyTier>(
                        60, [&retained] { retained.Put("c", std::make_unique<EmptyTier>(60)); }));
  retained.Put("b", std::make_unique<EmptyTier>(60));
  EXPECT_EQ(retained.bytes(), 60U);
  EXPECT_EQ(retained.Take("b"), nullptr) << "dropped for the newer one";
  EXPECT_NE(retained.Take("c"), nullptr);
}

}  // namespace
}  // namespace headrace
