// Compressed files that lie in an object store.

#include <functional>
#include <latch>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/decoded/decoded_store.h"
#include "store/decoded/file_decoder.h"
#include "store/decoded/testing/coded_files.h"
#include "store/objects/object_store.h"
#include "store/testing/reader.h"

namespace headrace {
namespace {

constexpr Coding kStoredCodings[] = {Coding::kStored, Coding::kZstd, Coding::kGzip};
constexpr std::uint64_t kObjectBytes = 100'000;

// Answers when it is stopped, and not before.
class HangingStore final : public ByteStore {
 public:
  explicit HangingStore(std::latch& asked) : asked_(asked) {}

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override {
    done_ = std::move(requests.front().done);
    on_stop_ = std::make_unique<std::stop_callback<std::function<void()>>>(
        std::move(stop), [this] { done_(Status(StatusCode::kCancelled, "stop requested")); });
    asked_.count_down();
  }
  [[nodiscard]] StoreStats stats() const override { return {}; }

 private:
  std::latch& asked_;
  ReadRequest::Done done_;
  std::unique_ptr<std::stop_callback<std::function<void()>>> on_stop_;
};

class StoredObjectsTest : public testing::Test {
 protected:
  void Add(std::uint64_t id) {
    bytes_.push_back(RandomBytes(id, kObjectBytes));
    files_.Add(ObjectId{id}, kStoredCodings[id % 3], bytes_.back());
  }
  // The version of the fake fetcher's objects is 7.
  void Open(std::int64_t version) {
    files_.MoveToObjects(version);
    auto decoder = std::make_unique<FileDecoder>(files_, files_.root());
    ObjectStoreOptions options{
        .fetchers = {.command = {HEADRACE_FAKE_FETCHER, files_.folder() + "/pids"}}};
    decoder->ReadBy({.store = ObjectStore::Open(decoder->stored(), fetching_, options).value()});
    Open(std::move(decoder));
  }
  void Open(std::unique_ptr<FileDecoder> decoder) {
    store_ = std::make_unique<DecodedStore>(std::move(decoder), executor_);
  }
  ReadAnswer Read(std::uint64_t id, ByteRange range) {
    return ReadAll(*store_, {{ObjectId{id}, range}}).front();
  }

  CodedFiles files_;
  std::vector<std::string> bytes_;
  TestExecutor fetching_{1};
  TestExecutor executor_{3};
  std::unique_ptr<DecodedStore> store_;
};

TEST_F(StoredObjectsTest, AreReadByTheirStoreAndDecoded) {
  for (std::uint64_t id = 0; id < 6; ++id) Add(id);
  Open(/*version=*/7);
  for (std::uint64_t id = 0; id < 6; ++id) {
    const ReadAnswer answer = Read(id, {id, kObjectBytes - id});
    ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
    EXPECT_TRUE(answer.bytes == bytes_[id].substr(id));
    EXPECT_TRUE(store_->CheckObject(ObjectId{id}).ok());
  }
  EXPECT_EQ(store_->stats().reads, 6U);
  EXPECT_GT(store_->stats().request_bytes_peak, 0U);
}

TEST_F(StoredObjectsTest, OneThatChangedIsAnErrorThatNamesIt) {
  Add(1);
  Open(/*version=*/8);
  const std::string url = "s3://" + files_.path(ObjectId{1});
  const ReadAnswer answer = Read(1, {1, 2});
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.status.message(),
            "reading " + url + " bytes [1, 3): the object has changed; index the dataset again");
  EXPECT_EQ(store_->CheckObject(ObjectId{1}).message(),
            "opening " + url + ": the object has changed; index the dataset again");
}

TEST_F(StoredObjectsTest, AReadThatNobodyWantsAnyMoreIsStopped) {
  Add(0);
  files_.MoveToObjects(/*version=*/7);
  std::latch asked(1);
  auto decoder = std::make_unique<FileDecoder>(files_, files_.root());
  decoder->ReadBy({.store = std::make_unique<HangingStore>(asked)});
  Open(std::move(decoder));
  std::stop_source stop;
  AlignedBuffer buffer(1);
  std::latch answered(1);
  Status status;
  std::vector<ReadRequest> requests;
  requests.push_back({.extent = {ObjectId{0}, {0, 1}},
                      .buffer = buffer.bytes(),
                      .done = [&](const Result<std::span<std::byte>>& data) {
                        status = data.status();
                        answered.count_down();
                      }});
  store_->Read(std::move(requests), stop.get_token());
  asked.wait();
  stop.request_stop();
  answered.wait();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace headrace
