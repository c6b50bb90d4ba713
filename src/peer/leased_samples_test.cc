#include "peer/leased_samples.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

// Has sample 1, and answers when Answer() is called.
class OneSample final : public HeldSamples {
 public:
  OneSample() {
    tier_->Insert(SampleId{1}, {std::as_bytes(std::span(bytes_))},
                  [](const Status& status) { ASSERT_TRUE(status.ok()); });
  }
  void Take(SampleId sample, std::uint64_t /*deadline*/, TakenEntry done) override {
    waiting_.emplace_back(sample, std::move(done));
  }
  void Answer() {
    for (auto& [sample, done] : std::exchange(waiting_, {})) {
      Tier::EntryRef entry = tier_->Find(sample);
      if (entry) {
        done(std::move(entry));
      } else {
        done(Status(StatusCode::kNotFound, "not here"));
      }
    }
  }

 private:
  const std::string bytes_ = "bytes";
  const std::unique_ptr<RamTier> tier_ = RamTier::Make(1 << 16, 4096).value();
  std::vector<std::pair<SampleId, TakenEntry>> waiting_;
};

TEST(LeasedSamplesTest, GivesNothingBeforeItHasSomething) {
  LeasedSamples samples;
  Status said;
  samples.Take(SampleId{1}, 0,
               [&](Result<Tier::EntryRef> entry, const std::shared_ptr<LeasedSamples::Lease>&) {
                 said = entry.status();
               });
  EXPECT_EQ(said.code(), StatusCode::kUnavailable);
}

TEST(LeasedSamplesTest, TakesBackOnlyWhenNothingIsInUse) {
  OneSample held;
  LeasedSamples samples;
  samples.Give(&held);
  std::shared_ptr<LeasedSamples::Lease> lease;
  Tier::EntryRef entry;
  samples.Take(SampleId{1}, 0,
               [&](Result<Tier::EntryRef> got, std::shared_ptr<LeasedSamples::Lease> with) {
                 entry = std::move(got).value();
                 lease = std::move(with);
               });
  samples.Take(
      SampleId{2}, 0,
      [&](const Result<Tier::EntryRef>& got, const std::shared_ptr<LeasedSamples::Lease>&) {
        EXPECT_EQ(got.status().code(), StatusCode::kNotFound);
      });
  held.Answer();
  ASSERT_TRUE(entry);
  std::atomic<bool> taken_back = false;
  std::jthread owner([&] {
    samples.Give(nullptr);
    taken_back = true;
  });
  EXPECT_FALSE(taken_back);
  entry.Reset();
  lease.reset();
  owner.join();
  EXPECT_TRUE(taken_back);
}

TEST(LeasedSamplesTest, ANodeThatPlansNoParcelsSaysSo) {
  OneSample held;
  LeasedSamples samples;
  samples.Give(&held);
  std::string said;
  samples.TakeParcel(1, {.count = 1},
                     [&](const Result<OwnedBytes>& bytes) { said = bytes.status().ToString(); });
  EXPECT_EQ(said, "InvalidArgument: this node sends no parcels");
  samples.Give(nullptr);
}

}  // namespace
}  // namespace headrace
