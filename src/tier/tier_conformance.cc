#include "tier/tier_conformance.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"

namespace headrace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

namespace {

std::string Copied(Tier& tier, const Tier::EntryRef& entry, std::uint64_t offset,
                   std::uint64_t size) {
  std::string text(size, '?');
  tier.CopyOut(entry, offset, std::as_writable_bytes(std::span(text)));
  return text;
}

// The bytes of a sample: a few less than `units` units.
std::string BytesOfUnits(std::uint64_t seed, std::uint64_t units) {
  return RandomBytes(seed, units * 4096 - seed % 1000);
}

}  // namespace

void TierConformanceTest::Make(std::uint64_t units) {
  made_ = nullptr;
  Result<std::unique_ptr<TierUnderTest>> made = GetParam().make(units * kUnitBytes, kUnitBytes);
  if (!made.ok()) GTEST_SKIP() << made.status().ToString();
  made_ = std::move(made).value();
}

void TierConformanceTest::ExpectHeld(std::uint64_t sample, const std::string& bytes) {
  const Tier::EntryRef entry = tier().Find(SampleId{sample});
  ASSERT_TRUE(entry) << "sample " << sample << " is not found";
  EXPECT_EQ(entry.bytes(), bytes.size());
  const Result<std::string> read = Read(entry);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read.value() == bytes) << "wrong bytes of sample " << sample;
  if (!tier().in_memory()) return;
  EXPECT_TRUE(tier().Check(entry).ok());
  EXPECT_TRUE(Copied(tier(), entry, 0, bytes.size()) == bytes);
}

void TierConformanceTest::ExpectNotHeld(std::uint64_t sample) {
  EXPECT_FALSE(tier().Find(SampleId{sample})) << "sample " << sample;
}

TEST_P(TierConformanceTest, AnEmptyTierHoldsNothing) {
  EXPECT_FALSE(tier().name().empty());
  EXPECT_EQ(tier().unit_bytes(), kUnitBytes);
  ExpectNotHeld(0);
  EXPECT_TRUE(tier().Held().empty());
  const TierStats stats = tier().stats();
  EXPECT_EQ(stats.capacity_bytes, kUnits * kUnitBytes);
  EXPECT_EQ(stats.used_bytes, 0U);
  EXPECT_EQ(stats.entries, 0U);
  EXPECT_EQ(stats.entries_inherited, 0U);
  EXPECT_FALSE(stats.degraded);
}

TEST_P(TierConformanceTest, WhatWasInsertedReadsBackWhateverItsSize) {
  std::uint64_t sample = 0;
  for (const std::uint64_t size : {0U, 1U, 511U, 4095U, 4096U, 4097U, 8192U, 40'000U}) {
    const std::string bytes = RandomBytes(size, size);
    ASSERT_TRUE(Insert(sample, bytes).ok());
    ExpectHeld(sample, bytes);
    ++sample;
  }
  EXPECT_EQ(used_units(), 1U + 1 + 1 + 1 + 1 + 2 + 2 + 10);
}

TEST_P(TierConformanceTest, AUnitIsTheLeastThatIsCharged) {
  EXPECT_EQ(tier().Units(0), 1U);
  EXPECT_EQ(tier().Units(1), 1U);
  EXPECT_EQ(tier().Units(4096), 1U);
  EXPECT_EQ(tier().Units(4097), 2U);
  EXPECT_EQ(tier().Units(~std::uint64_t{0}), std::uint64_t{1} << 52);
}

TEST_P(TierConformanceTest, PartsAreOneAfterTheOther) {
  const std::string bytes = RandomBytes(1, 30'001);
  ASSERT_TRUE(Insert(1, bytes, 2).ok());
  ASSERT_TRUE(Insert(2, bytes, 7).ok());
  ExpectHeld(1, bytes);
  ExpectHeld(2, bytes);
  const std::string few = "abc";
  ASSERT_TRUE(Insert(3, few, 5).ok());  // Some are empty.
  ExpectHeld(3, few);
  ASSERT_TRUE(Insert(4, "", 0).ok());
  ExpectHeld(4, "");
}

TEST_P(TierConformanceTest, RangesOfWhatIsInMemoryCanBeViewedAndCopied) {
  const std::string bytes = RandomBytes(1, 20'000);
  ASSERT_TRUE(Insert(1, bytes).ok());
  const Tier::EntryRef entry = tier().Find(SampleId{1});
  ASSERT_TRUE(entry);
  if (!tier().in_memory()) {
    EXPECT_FALSE(tier().View(entry, 0, 1).has_value());
    return;
  }
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = {
      {0, 20'000}, {1, 1}, {4000, 200}, {19'999, 1}, {20'000, 0}};
  for (const auto& [offset, size] : ranges) {
    EXPECT_TRUE(Copied(tier(), entry, offset, size) == bytes.substr(offset, size));
    const auto view = tier().View(entry, offset, size);
    ASSERT_TRUE(view.has_value());  // Nothing was erased yet: it is contiguous.
    EXPECT_TRUE(std::ranges::equal(*view, std::as_bytes(std::span(bytes)).subspan(offset, size)));
  }
}

TEST_P(TierConformanceTest, InsertingWhatIsThereIsOkAndChargedOnce) {
  const std::string bytes = RandomBytes(1, 5000);
  ASSERT_TRUE(Insert(1, bytes).ok());
  ASSERT_TRUE(Insert(1, bytes).ok());
  ExpectHeld(1, bytes);
  EXPECT_EQ(used_units(), 2U);
  EXPECT_EQ(tier().stats().inserts, 1U);
}

TEST_P(TierConformanceTest, AFullTierRefusesUntilSomethingIsErased) {
  ASSERT_TRUE(Insert(1, BytesOfUnits(1, kUnits - 1)).ok());
  ASSERT_TRUE(Insert(2, "x").ok());
  const Status refused = Insert(3, RandomBytes(3, 4097));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.ToString();
  EXPECT_EQ(refused.message(), "keeping sample 3: it takes 8.0 KiB, 0 bytes are free");
  ExpectNotHeld(3);
  EXPECT_EQ(tier().stats().inserts_refused, 1U);
  EXPECT_EQ(used_units(), kUnits);
  EXPECT_FALSE(tier().stats().degraded);
  tier().Erase(SampleId{1});
  EXPECT_EQ(used_units(), 1U);
  const std::string third = RandomBytes(3, 4097);
  ASSERT_TRUE(Insert(3, third).ok());
  ExpectHeld(3, third);
  ExpectHeld(2, "x");
}

TEST_P(TierConformanceTest, ASampleLargerThanTheTierIsRefused) {
  const Status refused = Insert(1, RandomBytes(1, kUnits * kUnitBytes + 1));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  const std::string fits = RandomBytes(2, kUnits * kUnitBytes);
  ASSERT_TRUE(Insert(2, fits).ok());
  ExpectHeld(2, fits);
}

TEST_P(TierConformanceTest, WhatWasErasedIsNotFoundAndMayComeAgain) {
  ASSERT_TRUE(Insert(1, "one").ok());
  tier().Erase(SampleId{1});
  tier().Erase(SampleId{1});
  tier().Erase(SampleId{99});
  ExpectNotHeld(1);
  EXPECT_EQ(tier().stats().erased, 1U);
  EXPECT_EQ(used_units(), 0U);
  ASSERT_TRUE(Insert(1, "another").ok());
  ExpectHeld(1, "another");
}

TEST_P(TierConformanceTest, NoRoomIsLostToGaps) {
  const std::uint64_t half = kUnits / 2;
  for (std::uint64_t i = 0; i < kUnits; ++i) ASSERT_TRUE(Insert(i, RandomBytes(i, 4096)).ok());
  for (std::uint64_t i = 0; i < kUnits; i += 2) tier().Erase(SampleId{i});
  const std::string large = RandomBytes(777, half * kUnitBytes);
  ASSERT_TRUE(Insert(1000, large).ok());
  ExpectHeld(1000, large);
  for (std::uint64_t i = 1; i < kUnits; i += 2) ExpectHeld(i, RandomBytes(i, 4096));
  if (!tier().in_memory()) return;
  const Tier::EntryRef entry = tier().Find(SampleId{1000});
  EXPECT_FALSE(tier().View(entry, 0, large.size()).has_value());
  EXPECT_TRUE(Copied(tier(), entry, 4000, 10'000) == large.substr(4000, 10'000));
}

TEST_P(TierConformanceTest, AReferenceHoldsBytesAndRoomWhateverIsErased) {
  const std::string old = BytesOfUnits(1, kUnits / 2);
  ASSERT_TRUE(Insert(1, old).ok());
  Tier::EntryRef entry = tier().Find(SampleId{1});
  Tier::EntryRef second = tier().Find(SampleId{1});
  tier().Erase(SampleId{1});
  EXPECT_EQ(used_units(), kUnits / 2);
  EXPECT_EQ(tier().stats().entries, 0U);
  EXPECT_EQ(Insert(2, BytesOfUnits(2, kUnits)).code(), StatusCode::kResourceExhausted);
  const std::string fresh = BytesOfUnits(3, kUnits / 2);
  ASSERT_TRUE(Insert(1, fresh).ok());  // The same sample, beside its old entry.
  ExpectHeld(1, fresh);
  EXPECT_TRUE(Read(entry).value() == old);
  second.Reset();
  EXPECT_EQ(used_units(), kUnits);
  EXPECT_TRUE(Read(entry).value() == old);
  Tier::EntryRef moved = std::move(entry);
  EXPECT_TRUE(Read(moved).value() == old);
  moved.Reset();
  EXPECT_EQ(used_units(), kUnits / 2);
  ExpectHeld(1, fresh);
}

TEST_P(TierConformanceTest, ReadsAreCancelledOnceStopWasRequested) {
  ASSERT_TRUE(Insert(1, "one").ok());
  std::stop_source stop;
  stop.request_stop();
  const Tier::EntryRef entry = tier().Find(SampleId{1});
  const Result<std::string> read = ReadAndWait(tier(), entry, made_->pump(), stop.get_token());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(read.status().message(), "reading sample 1: stop requested");
  ExpectHeld(1, "one");
}

TEST_P(TierConformanceTest, ChangedBytesAreFoundByReadsCountedAndDropped) {
  const std::string bytes = RandomBytes(1, 6000);
  ASSERT_TRUE(Insert(1, bytes).ok());
  ASSERT_TRUE(Insert(2, bytes).ok());
  made_->Corrupt(SampleId{1});
  {
    const Tier::EntryRef entry = tier().Find(SampleId{1});
    const Result<std::string> read = Read(entry);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.status().code(), StatusCode::kDataLoss) << read.status().ToString();
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("sample 1"));
    ExpectNotHeld(1);
    EXPECT_EQ(Read(entry).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(tier().stats().corrupt, 1U);
  EXPECT_EQ(tier().stats().reads_failed, 2U);
  EXPECT_EQ(used_units(), 2U);
  ExpectHeld(2, bytes);
  ASSERT_TRUE(Insert(1, bytes).ok());
  ExpectHeld(1, bytes);
}

TEST_P(TierConformanceTest, ChangedBytesInMemoryAreFoundByCheck) {
  if (!tier().in_memory()) return;
  for (const std::uint64_t size : {100U, 20'000U}) {
    ASSERT_TRUE(Insert(1, RandomBytes(1, size)).ok());
    const Tier::EntryRef entry = tier().Find(SampleId{1});
    EXPECT_TRUE(tier().Check(entry).ok());
    made_->Corrupt(SampleId{1});
    EXPECT_EQ(tier().Check(entry).status().code(), StatusCode::kDataLoss);
    ExpectNotHeld(1);
  }
  EXPECT_EQ(tier().stats().corrupt, 2U);
  EXPECT_EQ(used_units(), 0U);
}

TEST_P(TierConformanceTest, AMediumThatTakesNothingDegradesTheTierAndItsEntriesAreStillServed) {
  ASSERT_TRUE(Insert(1, "one").ok());
  if (!made_->FailInserts()) return;
  const Status failed = Insert(2, "two");
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable) << failed.ToString();
  ExpectNotHeld(2);
  EXPECT_EQ(used_units(), 1U);
  EXPECT_EQ(Insert(3, "three").code(), StatusCode::kUnavailable);
  ExpectHeld(1, "one");
  const TierStats stats = tier().stats();
  EXPECT_TRUE(stats.degraded);
  EXPECT_THAT(stats.degraded_reason, HasSubstr("sample 2"));
  EXPECT_EQ(stats.inserts_failed, 2U);
  tier().Erase(SampleId{1});
  ExpectNotHeld(1);
}

TEST_P(TierConformanceTest, AMediumThatGivesNothingDegradesTheTierAndTheEntryIsGone) {
  ASSERT_TRUE(Insert(1, "one").ok());
  if (!made_->FailReads()) return;
  const Result<std::string> read = *FindAndRead(tier(), SampleId{1}, made_->pump());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), StatusCode::kUnavailable) << read.status().ToString();
  ExpectNotHeld(1);
  const TierStats stats = tier().stats();
  EXPECT_TRUE(stats.degraded);
  EXPECT_THAT(stats.degraded_reason, HasSubstr("sample 1"));
  EXPECT_EQ(stats.reads_failed, 1U);
  EXPECT_EQ(Insert(3, "three").code(), StatusCode::kUnavailable);
}

TEST_P(TierConformanceTest, HeldIsWhatFindWouldFind) {
  for (const std::uint64_t sample : {3U, 1U, 4U, 15U}) ASSERT_TRUE(Insert(sample, "x").ok());
  const Tier::EntryRef entry = tier().Find(SampleId{4});
  tier().Erase(SampleId{4});
  EXPECT_THAT(tier().Held(), UnorderedElementsAre(SampleId{3}, SampleId{1}, SampleId{15}));
  EXPECT_EQ(tier().stats().entries, 3U);
}

TEST_P(TierConformanceTest, StatsAddUp) {
  ASSERT_TRUE(Insert(1, RandomBytes(1, 5000)).ok());
  ASSERT_TRUE(Insert(2, RandomBytes(2, 100)).ok());
  ExpectHeld(1, RandomBytes(1, 5000));
  tier().Erase(SampleId{1});
  const TierStats stats = tier().stats();
  EXPECT_EQ(stats.inserts, 2U);
  EXPECT_EQ(stats.written_bytes, 5100U);
  EXPECT_EQ(stats.read_bytes, 5000U);
  EXPECT_EQ(stats.used_bytes, kUnitBytes);
  EXPECT_EQ(stats.used_bytes_peak, 3 * kUnitBytes);
  EXPECT_EQ(stats.erased, 1U);
  EXPECT_EQ(stats.inserts_refused + stats.inserts_failed + stats.corrupt + stats.reads_failed, 0U);
}

// A tier that answers only on request shows the state between a call and its end.
TEST_P(TierConformanceTest, AnEraseCancelsTheInsertThatWaits) {
  const TierPump pump = made_->pump();
  if (pump == nullptr) return;
  const std::string old = RandomBytes(1, 100);
  const std::string fresh = RandomBytes(2, 100);
  const TierAnswer first;
  const TierAnswer second;
  tier().Insert(SampleId{1}, PartsOf(old, 1), first.done());
  ExpectNotHeld(1);
  EXPECT_EQ(used_units(), 1U);
  tier().Erase(SampleId{1});
  tier().Insert(SampleId{1}, PartsOf(fresh, 1), second.done());
  EXPECT_EQ(used_units(), 2U);
  EXPECT_EQ(first.WaitStatus(pump).code(), StatusCode::kCancelled);
  EXPECT_TRUE(second.WaitStatus(pump).ok());
  EXPECT_EQ(used_units(), 1U);
  ExpectHeld(1, fresh);
}

TEST_P(TierConformanceTest, InsertsOfOneSampleAtOnceEndAlikeAndAreChargedOnce) {
  const std::string bytes = RandomBytes(1, 100);
  const TierAnswer first;
  const TierAnswer second;
  tier().Insert(SampleId{1}, PartsOf(bytes, 1), first.done());
  tier().Insert(SampleId{1}, PartsOf(bytes, 1), second.done());
  EXPECT_TRUE(first.WaitStatus(made_->pump()).ok());
  EXPECT_TRUE(second.WaitStatus(made_->pump()).ok());
  EXPECT_EQ(tier().stats().inserts, 1U);
  EXPECT_EQ(used_units(), 1U);
}

TEST_P(TierConformanceTest, AnInsertIsFoundInItsAnswerWhichMayCallTheTier) {
  const std::string bytes = RandomBytes(1, 5000);
  std::atomic<bool> ended = false;
  std::atomic<bool> found = false;
  tier().Insert(SampleId{1}, PartsOf(bytes, 1), [&](const Status& status) {
    found = status.ok() && static_cast<bool>(tier().Find(SampleId{1}));
    tier().Erase(SampleId{1});
    ended = true;
    ended.notify_all();
  });
  if (const TierPump pump = made_->pump(); pump != nullptr) pump();
  ended.wait(false);
  EXPECT_TRUE(found);
  ExpectNotHeld(1);
}

TEST_P(TierConformanceTest, TheDestructorWaitsUntilEveryAnswerWasGiven) {
  const std::string bytes = RandomBytes(1, 5000);
  std::vector<TierAnswer> answers(40);
  ASSERT_TRUE(Insert(1000, bytes).ok());
  for (std::size_t i = 0; i < 20; ++i) {
    tier().Insert(SampleId{i}, PartsOf(bytes, 1), answers[i].done());
  }
  Tier::EntryRef entry = tier().Find(SampleId{1000});
  std::vector<AlignedBuffer> buffers;
  for (std::size_t i = 20; i < 40; ++i) {
    buffers.emplace_back(tier().BufferBytes(entry));
    tier().Read(entry, i, buffers.back().bytes(), {}, answers[i].done_read());
  }
  const TierPump pump = made_->pump();
  // A reference must not outlive its tier; waiting reads hold the entry themselves.
  if (pump != nullptr) pump();
  for (std::size_t i = 20; i < 40; ++i) (void)answers[i].Wait(pump);
  entry.Reset();
  made_->DestroyTier();
  for (const TierAnswer& answer : answers) EXPECT_EQ(answer.times(), 1);
}

// Against a plain model, with references that stay whatever happens to their samples.
TEST_P(TierConformanceTest, DoesAsAMapDoesWhateverTheOrderOfCalls) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Make(kUnits);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed, 0, RandomStream::kOrder);
    std::map<std::uint64_t, std::string> model;
    std::vector<std::pair<Tier::EntryRef, std::string>> references;
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t sample = prng.Below(24);
      const std::uint64_t what = prng.Below(10);
      if (what < 4) {
        const std::string bytes = RandomBytes(prng.Next64(), prng.Below(6 * kUnitBytes));
        const bool fits = used_units() + tier().Units(bytes.size()) <= kUnits;
        const Status status = Insert(sample, bytes, 1 + prng.Below(3));
        const bool there = model.contains(sample);
        EXPECT_EQ(status.code(), fits || there ? StatusCode::kOk : StatusCode::kResourceExhausted);
        if (status.ok()) model.emplace(sample, bytes);
      } else if (what < 6) {
        tier().Erase(SampleId{sample});
        model.erase(sample);
      } else if (what < 8) {
        model.contains(sample) ? ExpectHeld(sample, model.at(sample)) : ExpectNotHeld(sample);
      } else if (references.size() < 6 && model.contains(sample)) {
        references.emplace_back(tier().Find(SampleId{sample}), model.at(sample));
      } else if (!references.empty()) {
        const std::size_t place = prng.Below(references.size());
        EXPECT_TRUE(Read(references[place].first).value() == references[place].second);
        references.erase(references.begin() + static_cast<std::ptrdiff_t>(place));
      }
      ASSERT_FALSE(HasFailure()) << "at step " << step;
    }
    EXPECT_EQ(tier().stats().entries, model.size());
    EXPECT_EQ(tier().Held().size(), model.size());
    for (const auto& [id, bytes] : model) ExpectHeld(id, bytes);
    references.clear();
    std::uint64_t units = 0;
    for (const auto& [id, bytes] : model) units += tier().Units(bytes.size());
    EXPECT_EQ(used_units(), units);
    EXPECT_LE(tier().stats().used_bytes_peak, kUnits * kUnitBytes);
  }
}

// Each sample has one content, so that any thread knows what it must read.
TEST_P(TierConformanceTest, ThreadsAtOnceSeeOnlyRightBytesAndNoRoomIsLost) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 300;
  const auto bytes_of = [](std::uint64_t sample) { return RandomBytes(sample, sample * 1500); };
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  const TierPump pump = made_->pump();
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Prng prng(static_cast<std::uint64_t>(t), 0, RandomStream::kOrder);
      for (int step = 0; step < kSteps; ++step) {
        const std::uint64_t sample = prng.Below(16);
        const std::uint64_t what = prng.Below(8);
        if (what < 3) {
          const std::string bytes = bytes_of(sample);
          const Status status = InsertAndWait(tier(), SampleId{sample}, bytes, pump, 2);
          EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted ||
                      status.code() == StatusCode::kCancelled)
              << status.ToString();
        } else if (what < 4) {
          tier().Erase(SampleId{sample});
        } else if (const auto read = FindAndRead(tier(), SampleId{sample}, pump)) {
          ASSERT_TRUE(read->ok()) << read->status().ToString();
          EXPECT_TRUE(read->value() == bytes_of(sample));
        }
      }
    });
  }
  threads.clear();
  std::uint64_t units = 0;
  for (const SampleId sample : tier().Held()) units += tier().Units(Raw(sample) * 1500);
  EXPECT_EQ(used_units(), units);
  const TierStats stats = tier().stats();
  EXPECT_LE(stats.used_bytes_peak, stats.capacity_bytes);
  EXPECT_EQ(stats.corrupt + stats.reads_failed + stats.inserts_failed, 0U);
  for (const SampleId sample : tier().Held()) tier().Erase(sample);
  EXPECT_EQ(used_units(), 0U);
}

}  // namespace headrace
