#include "store/objects/object_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "store/objects/testing/object_store_fixture.h"
#include "store/store_table.h"

namespace headrace {
namespace {

using testing::HasSubstr;

class ObjectStoreTest : public ObjectStoreFixture {};

TEST_F(ObjectStoreTest, ReadsTenThousandSmallRanges) {
  for (std::uint64_t id = 0; id < 8; ++id) Add(id, 50'000 + id);
  Open();
  Prng draw(1, 0, RandomStream::kOrder);
  std::vector<Extent> extents;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t id = draw.Below(bytes_.size());
    const std::uint64_t offset = draw.Below(bytes_[id].size());
    extents.push_back(
        {ObjectId{id}, {offset, draw.Below(std::min(bytes_[id].size() - offset, 300UL) + 1)}});
  }
  ExpectRight(extents);
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.reads, 10'000U);
  EXPECT_EQ(stats.failures, 0U);
  // One page for each attempt of the window, and few that were cancelled.
  EXPECT_LE(stats.request_bytes_peak, 300 * CellSpace::kUnitBytes);
}

TEST_F(ObjectStoreTest, LargeReadsTakeNoMoreMemoryThanTheLimit) {
  constexpr std::uint64_t kMemory = 8 * kMiB;
  Add(0, 64 * kMiB);
  Open({.fetchers = {.memory_bytes = kMemory}, .piece_bytes = kMiB});
  ExpectRight({{ObjectId{0}, {0, 64 * kMiB}}, {ObjectId{0}, {5, 9 * kMiB}}, {ObjectId{0}, {7, 9}}});
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.bytes, 73 * kMiB + 9);
  EXPECT_LE(stats.request_bytes_peak, kMemory);
  EXPECT_GE(stats.request_bytes_peak, kMiB);
}

TEST_F(ObjectStoreTest, AnObjectThatChangedIsAnErrorThatNamesIt) {
  Add(0, 100);
  FileInfo other = files_.file(ObjectId{0}).value();
  other.mtime_ns = 8;
  Open();
  EXPECT_TRUE(store_->CheckObject(ObjectId{0}).ok());
  files_.Enter(ObjectId{0}, other);
  const ReadAnswer answer = Read(0);
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.status.message(),
            Reading(0) + "the object has changed; index the dataset again");
  const Status checked = store_->CheckObject(ObjectId{0});
  EXPECT_EQ(checked.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(checked.message(),
            "opening " + other.path + ": the object has changed; index the dataset again");
  EXPECT_EQ(store_->stats().reads, 1U);  // A check is none.
}

TEST_F(ObjectStoreTest, ChecksOfEmptyAndUnknownObjectsMakeNoRequest) {
  Add(0, 0, "refuse");
  Open();
  EXPECT_TRUE(store_->CheckObject(ObjectId{0}).ok());
  const Status unknown = store_->CheckObject(ObjectId{9});
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_EQ(unknown.message(), "opening object 9: no such object");
  EXPECT_EQ(files_.tries(ObjectId{0}), 0U);
}

TEST_F(ObjectStoreTest, AUrlThatIsTooLongIsRefused) {
  Add(0, 100);
  FileInfo file = files_.file(ObjectId{0}).value();
  file.path.append(kFetcherUrlBytesMax, 'x');
  files_.Enter(ObjectId{0}, file);
  Open();
  EXPECT_THAT(Read(0).status.message(), HasSubstr("bytes, at most 16384 can be read"));
}

TEST_F(ObjectStoreTest, AStoppedReadIsCancelledAndOthersGoOn) {
  Add(0, 5 * kMiB, "stall@1000");
  Add(1, 100'000);
  Open({.fetchers = {.memory_bytes = 2 * kMiB}, .piece_bytes = kMiB});
  std::stop_source stop;
  std::atomic<int> cancelled = 0;
  const auto read = [&] {
    const ReadAnswer answer = Read(0, {0, 5 * kMiB}, stop.get_token());
    cancelled += answer.status.code() == StatusCode::kCancelled ? 1 : 0;
    EXPECT_EQ(answer.status.message(), Reading(0) + "stop requested");
  };
  std::jthread first(read);
  while (files_.tries(ObjectId{0}) == 0) std::this_thread::yield();
  std::jthread second(read);
  stop.request_stop();
  first.join();
  second.join();
  EXPECT_EQ(cancelled, 2);
  ExpectRight(1);
  EXPECT_EQ(store_->stats().failures, 0U);
}

TEST_F(ObjectStoreTest, WithoutACommandOrWithAWrongOneItCannotBeOpened) {
  const Status none = ObjectStore::Open(files_, executor_, {}).status();
  EXPECT_EQ(none.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.message(),
            "starting a fetcher of objects: this process has no command for it; import "
            "headrace.formats, or start headrace-node with --helper");
  const Status wrong =
      ObjectStore::Open(files_, executor_, {.fetchers = {.command = {"/nowhere/python"}}}).status();
  EXPECT_EQ(wrong.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(wrong.message(), HasSubstr("see that this program is there and runs"));
}

TEST_F(ObjectStoreTest, ItIsTheStoreOfObjectSchemesOnly) {
  for (const char* const scheme : {"s3", "gs", "az", "https", "http"}) {
    const StoreFactory* factory = FindStore(kAnyStore, {.scheme = scheme});
    ASSERT_NE(factory, nullptr);
    EXPECT_EQ(factory->name(), "object_store");
  }
  const Status files = OpenStoreOf({.scheme = "file"}, "object_store").status();
  EXPECT_EQ(files.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(files.message(), HasSubstr("these are of file://; leave io= out"));
}

TEST_F(ObjectStoreTest, AForkMayOnlyDestroyIt) {
  Add(0, 100);
  Open();
  ExpectRight(0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = Read(0).status.code() == StatusCode::kFailedPrecondition;
    const bool unchecked =
        store_->CheckObject(ObjectId{0}).code() == StatusCode::kFailedPrecondition;
    store_ = nullptr;
    ::_exit(refused && unchecked ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ExpectRight(0);
}

}  // namespace
}  // namespace headrace
