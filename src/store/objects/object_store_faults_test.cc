#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "store/objects/object_store.h"
#include "store/objects/testing/object_store_fixture.h"

namespace headrace {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// Waits are short.
ObjectStoreOptions Hasty() {
  ObjectStoreOptions options;
  options.reads.pause.first_ns = kNsPerMs;
  options.reads.broken_first_ns = kNsPerMs;
  options.reads.tries_max = 3;
  options.fetchers.silence_ns = 30 * kNsPerMs;
  options.fetchers.check_ns = kNsPerMs;
  return options;
}

class ObjectStoreFaultsTest : public ObjectStoreFixture {};

TEST_F(ObjectStoreFaultsTest, AFetcherThatIsKilledAtAByteIsReplaced) {
  Add(0, kMiB, "1*die@300000");
  Add(1, kMiB, "die@100");
  Open();
  ExpectRight(0);
  EXPECT_EQ(files_.tries(ObjectId{0}), 2U);
  const ReadAnswer answer = Read(1);
  EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(answer.status.message(), HasSubstr("was ended by signal 9"));
  EXPECT_THAT(answer.status.message(), HasSubstr("it is process 3 that ended during this read"));
  EXPECT_EQ(files_.tries(ObjectId{1}), 3U);
  ExpectRight(0);
}

TEST_F(ObjectStoreFaultsTest, SlowDownsAndBrokenBodiesAreTriedAgainFromWhatArrived) {
  Add(0, 1000, "3*slow");
  Add(1, kMiB, "2*cut@300000");
  Open(Hasty());
  ExpectRight(0);
  EXPECT_EQ(store_->stats().slow_downs, 3U);
  EXPECT_EQ(store_->stats().retries, 3U);
  ExpectRight(1);
  EXPECT_EQ(files_.tries(ObjectId{1}), 3U);
  EXPECT_EQ(store_->stats().retries, 5U);
  EXPECT_EQ(store_->stats().failures, 0U);
}

TEST_F(ObjectStoreFaultsTest, ARefusalIsFinalAndNamesTheRead) {
  Add(0, 100, "refuse");
  Open();
  const ReadAnswer answer = Read(0);
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.status.message(), Reading(0) + "no such key");
  EXPECT_EQ(files_.tries(ObjectId{0}), 1U);
  EXPECT_EQ(store_->stats().failures, 1U);
}

TEST_F(ObjectStoreFaultsTest, OnePieceThatFailsEndsTheOthers) {
  Add(0, 20'000, "5*stall,1*refuse");
  Add(1, 100);
  Open({.piece_bytes = 5000});
  EXPECT_THAT(Read(0).status.message(), EndsWith("no such key"));
  ExpectRight(1);
}

TEST_F(ObjectStoreFaultsTest, AnAttemptWithoutAByteForLongIsBroken) {
  Add(0, kMiB, "1*stall@5000");
  Add(1, 1000, "stall");
  Open(Hasty());
  ExpectRight(0);
  EXPECT_EQ(store_->stats().retries, 1U);
  const ReadAnswer answer = Read(1);
  EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(answer.status.message(), HasSubstr("no byte came for 0.03 s, after 3 tries"));
}

TEST_F(ObjectStoreFaultsTest, AHedgeReadsWhatIsLate) {
  Add(0, kMiB, "1*stall@5000");
  Add(1, 100);
  ObjectStoreOptions options;
  options.reads.first_byte.unknown_ns = options.reads.next_bytes.unknown_ns = kNsPerMs;
  Open(options);
  for (int i = 0; i < 40; ++i) ExpectRight(1);  // A twentieth of a hedge each.
  ExpectRight(0);
  EXPECT_GE(store_->stats().hedges, 1U);
  EXPECT_EQ(store_->stats().retries, 0U);
}

TEST_F(ObjectStoreFaultsTest, AFetcherThatDoesNotEndCancelledRequestsIsReplaced) {
  Add(0, 1000, "stall,deaf");
  Add(1, 1000);
  ObjectStoreOptions options;
  options.fetchers.processes_max = 1;
  options.fetchers.owed_max = 2;
  options.fetchers.check_ns = kNsPerMs;
  Open(options);
  std::stop_source stop;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      EXPECT_EQ(Read(0, {0, 1000}, stop.get_token()).status.code(), StatusCode::kCancelled);
    });
  }
  while (files_.tries(ObjectId{0}) < 3) std::this_thread::yield();
  stop.request_stop();
  readers.clear();
  while (files_.fetcher_pids().size() < 2) ExpectRight(1);
  while (store_->stats().request_bytes > 0) ExpectRight(1);
}

TEST_F(ObjectStoreFaultsTest, TheCellOfACancelledAttemptIsNotUsedBeforeItsEndIsConfirmed) {
  Add(0, 1000, "stall,deaf");
  Add(1, 1000);
  Open();
  std::stop_source stop;
  std::jthread reader([&] {
    EXPECT_EQ(Read(0, {0, 1000}, stop.get_token()).status.code(), StatusCode::kCancelled);
  });
  while (files_.tries(ObjectId{0}) == 0) std::this_thread::yield();
  stop.request_stop();
  reader.join();
  for (int i = 0; i < 10; ++i) ExpectRight(1);
  EXPECT_EQ(store_->stats().request_bytes_peak, 2 * CellSpace::kUnitBytes);
}

TEST_F(ObjectStoreFaultsTest, AFetcherThatReportsNonsenseIsKilledAndReplaced) {
  Add(0, kMiB, "1*garbage@5000");
  Add(1, kMiB, "1*other@5000");
  Add(2, kMiB, "garbage");
  Open();
  ExpectRight(0);
  ExpectRight(1);
  EXPECT_THAT(Read(2).status.message(), HasSubstr("was killed: "));
}

TEST_F(ObjectStoreFaultsTest, FetchersThatCannotStartAreAnErrorWithAWayOut) {
  Add(0, 100);
  store_ = ObjectStore::Open(files_, executor_,
                             {.fetchers = {.command = {HEADRACE_FAKE_FETCHER, "exit"}}})
               .value();
  const ReadAnswer answer = Read(0);
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(answer.status.message(), HasSubstr(Reading(0) + "3 fetchers in a row ended"));
  EXPECT_THAT(answer.status.message(), HasSubstr("ended with status 3"));
  EXPECT_THAT(answer.status.message(), HasSubstr("pip install 'headrace[objects]'"));
}

TEST_F(ObjectStoreFaultsTest, FetchersThatAreKilledUnderLoadLoseNoByte) {
  constexpr int kReaders = 3;
  constexpr std::uint64_t kReads = 700;  // of each
  for (std::uint64_t id = 0; id < 4; ++id) Add(id, 3 * kMiB);
  ObjectStoreOptions options;
  options.reads.fetchers_max = 1000;  // Kills follow each other closely.
  options.fetchers.processes_max = 3;
  options.fetchers.attempts_each = 4;
  options.fetchers.memory_bytes = 32 * kMiB;
  options.piece_bytes = 256 * kKiB;
  Open(options);
  std::atomic<std::uint64_t> done = 0;
  std::vector<std::jthread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      Prng draw(static_cast<std::uint64_t>(r), 0, RandomStream::kOrder);
      for (std::uint64_t i = 0; i < kReads; i += 10) {
        std::vector<Extent> extents;
        for (int k = 0; k < 10; ++k) {
          const std::uint64_t id = draw.Below(4);
          const std::uint64_t offset = draw.Below(bytes_[id].size());
          const std::uint64_t most = draw.Below(10) == 0 ? kMiB : 20'000;
          extents.push_back(
              {ObjectId{id}, {offset, draw.Below(std::min(bytes_[id].size() - offset, most) + 1)}});
        }
        ExpectRight(extents);
        done += 10;
        done.notify_all();
      }
    });
  }
  Prng draw(9, 0, RandomStream::kOrder);
  for (std::uint64_t next = 50; next < kReaders * kReads - 200; next += 100) {
    for (std::uint64_t seen = done; seen < next; seen = done) done.wait(seen);
    const std::vector<pid_t> pids = files_.fetcher_pids();
    const std::size_t newest = std::min<std::size_t>(pids.size(), 3);
    (void)::kill(pids[pids.size() - 1 - draw.Below(newest)], SIGKILL);
  }
  readers.clear();
  EXPECT_GE(files_.fetcher_pids().size(), 10U);
  EXPECT_EQ(store_->stats().failures, 0U);
  EXPECT_LE(store_->stats().request_bytes_peak, 32 * kMiB);
}

}  // namespace
}  // namespace headrace
