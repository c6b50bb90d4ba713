#include "store/decoded/decoded_store.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/decoded/file_decoder.h"
#include "store/decoded/testing/coded_files.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Coding kCodings[] = {Coding::kStored, Coding::kZstd, Coding::kGzip};

class DecodedStoreTest : public testing::Test {
 protected:
  void Add(std::uint64_t id, Coding coding, std::size_t size) {
    bytes_.push_back(RandomBytes(id, size));
    files_.Add(ObjectId{id}, coding, bytes_.back());
  }
  void Open(std::uint64_t kept_bytes_max) {
    store_ = std::make_unique<DecodedStore>(
        std::make_unique<FileDecoder>(files_, files_.root()), executor_,
        DecodedStoreOptions{.limits = {.kept_bytes_max = kept_bytes_max}});
  }

  CodedFiles files_;
  std::vector<std::string> bytes_;
  TestExecutor executor_{3};
  std::unique_ptr<DecodedStore> store_;
};

TEST_F(DecodedStoreTest, ReadsRangesOfManyObjectsWhateverItKeeps) {
  for (std::uint64_t id = 0; id < 9; ++id) Add(id, kCodings[id % 3], 1000 * id);
  for (const std::uint64_t kept : {0U, 1U, 8000U, 1U << 20}) {
    Open(kept);
    Prng draw(kept, 0, RandomStream::kOrder);
    for (int round = 0; round < 20; ++round) {
      std::vector<Extent> extents;
      for (int i = 0; i < 20; ++i) {
        const std::uint64_t id = draw.Below(bytes_.size());
        const std::uint64_t offset = draw.Below(bytes_[id].size() + 1);
        const std::uint64_t size = draw.Below(bytes_[id].size() - offset + 1);
        extents.push_back({ObjectId{id}, {offset, size}});
      }
      const std::vector<ReadAnswer> answers = ReadAll(*store_, extents);
      for (std::size_t i = 0; i < extents.size(); ++i) {
        const Extent& extent = extents[i];
        ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.ToString();
        ASSERT_EQ(answers[i].bytes,
                  bytes_[Raw(extent.object)].substr(extent.range.offset, extent.range.size));
      }
    }
  }
}

TEST_F(DecodedStoreTest, AChangedFileIsFoundOut) {
  Add(0, Coding::kZstd, 1000);
  Open(0);
  WriteFile(files_.path(ObjectId{0}), "other bytes");
  const ReadAnswer answer = ReadAll(*store_, {{ObjectId{0}, {1, 2}}}).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(answer.status.message(),
              StartsWith("reading " + files_.path(ObjectId{0}) +
                         " bytes [1, 3): file changed since it was indexed: size"));
  EXPECT_EQ(store_->CheckObject(ObjectId{0}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(DecodedStoreTest, DamageNamesTheFileAndTheRange) {
  std::string encoded = Encoded(Coding::kGzip, RandomBytes(5, 5000));
  encoded[2000] = static_cast<char>(encoded[2000] + 1);
  files_.AddEncoded(ObjectId{0}, Coding::kGzip, encoded, 5000);
  Open(0);
  const ReadAnswer answer = ReadAll(*store_, {{ObjectId{0}, {1, 2}}}).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(answer.status.message(),
              HasSubstr("reading " + files_.path(ObjectId{0}) + " bytes [1, 3): decoding: "));
}

TEST_F(DecodedStoreTest, ANameOfAnotherFormIsDataLoss) {
  Add(0, Coding::kZstd, 10);
  Open(0);
  for (const char* const name :
       {"a", "zstd:10:3/a", "zstd:10:3+/a", "zstd:10:8+3/a", "zstd:10:-1+3/a", "zstd:10:0+3+/a",
        "zstd/a", "lz4:10/a", "zstd:/a", "zstd:1x/a", "zstd:-1/a", "a/zstd:10/b",
        "zstd:99999999999999999999/a"}) {
    files_.Rename(ObjectId{0}, name);
    const ReadAnswer answer = ReadAll(*store_, {{ObjectId{0}, {0, 1}}}).front();
    EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(answer.status.message(), HasSubstr("CODING:BYTES/PATH"));
  }
}

TEST_F(DecodedStoreTest, PartsOfAFileAreObjects) {
  std::string file = "header";
  std::vector<ByteRange> parts;
  for (std::uint64_t id = 0; id < 5; ++id) {
    bytes_.push_back(RandomBytes(id, 1000 * id));
    const std::string part = Encoded(kCodings[id % 3], bytes_.back());
    parts.push_back({.offset = file.size(), .size = part.size()});
    file += part + "between";
  }
  for (std::uint64_t id = 0; id < 5; ++id) {
    files_.AddPart(ObjectId{id}, kCodings[id % 3], parts[id], bytes_[id].size(), file);
  }
  Open(1 << 20);
  for (std::uint64_t id = 0; id < 5; ++id) {
    const ReadAnswer answer = ReadAll(*store_, {{ObjectId{id}, {0, bytes_[id].size()}}}).front();
    ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
    EXPECT_EQ(answer.bytes, bytes_[id]);
  }
  files_.AddPart(ObjectId{5}, Coding::kZstd, {.offset = 2, .size = 40}, 10, file);
  EXPECT_THAT(
      ReadAll(*store_, {{ObjectId{5}, {0, 1}}}).front().status.message(),
      HasSubstr(files_.path(ObjectId{5}) + " bytes [0, 1): decoding its bytes [2, 42): damaged"));
}

TEST_F(DecodedStoreTest, ReadsPastTheEndAreOutOfRange) {
  Add(0, Coding::kZstd, 10);
  Open(0);
  const ReadAnswer answer = ReadAll(*store_, {{ObjectId{0}, {8, 4}}}).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kOutOfRange);
}

// Object N decodes to N bytes of value N. Counts the decodes, and can hold them up.
class CountingDecoder final : public ObjectDecoder {
 public:
  [[nodiscard]] std::string Name(ObjectId object) const override { return ObjectName(object); }
  [[nodiscard]] Result<std::uint64_t> DecodedSize(ObjectId object) const override {
    return Raw(object);
  }
  [[nodiscard]] Result<std::uint64_t> DecodeBytes(ObjectId object) const override {
    return DecodedSize(object);
  }
  [[nodiscard]] Status CheckObject(ObjectId /*object*/) override { return {}; }
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) override {
    {
      MutexLock lock(mutex_);
      ++decodes_;
      decoding_bytes_ += Raw(object);
      most_bytes_ = std::max(most_bytes_, decoding_bytes_);
      changed_.NotifyAll();
      while (held_) changed_.Wait(mutex_);
      decoding_bytes_ -= Raw(object);
    }
    if (cancels_.exchange(false) || !wanted()) {
      return Status(StatusCode::kCancelled, "stop requested");
    }
    auto bytes = std::make_shared<std::string>(Raw(object), static_cast<char>(Raw(object)));
    const std::span<const std::byte> span = std::as_bytes(std::span(*bytes));
    return DecodedBytes{.owner = std::move(bytes), .bytes = span, .charged_bytes = 100};
  }

  void Hold(bool held) {
    MutexLock lock(mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  void CancelNext() { cancels_ = true; }
  void AwaitDecodes(int count) {
    MutexLock lock(mutex_);
    while (decodes_ < count) changed_.Wait(mutex_);
  }
  int decodes() {
    MutexLock lock(mutex_);
    return decodes_;
  }
  std::uint64_t most_bytes() {
    MutexLock lock(mutex_);
    return most_bytes_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool held_ HEADRACE_GUARDED_BY(mutex_) = false;
  int decodes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t decoding_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t most_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> cancels_ = false;
};

class DecodedStoreLimitsTest : public testing::Test {
 protected:
  void Open(DecodedStoreOptions options) {
    auto decoder = std::make_unique<CountingDecoder>();
    decoder_ = decoder.get();
    store_ = std::make_unique<DecodedStore>(std::move(decoder), executor_, std::move(options));
  }
  static Extent Whole(std::uint64_t id) { return {ObjectId{id}, {0, id}}; }
  // A read whose answer goes to `answer`.
  ReadRequest Ask(std::uint64_t id, const AlignedBuffer& buffer, std::promise<Status>& answer) {
    return {.extent = Whole(id),
            .buffer = buffer.bytes(),
            .done = [&answer](const Result<std::span<std::byte>>& read) {
              answer.set_value(read.status());
            }};
  }

  TestExecutor executor_{3};
  CountingDecoder* decoder_ = nullptr;
  std::unique_ptr<DecodedStore> store_;
};

TEST_F(DecodedStoreLimitsTest, KeepsObjectsByWhatTheyCount) {
  Open({.limits = {.kept_bytes_max = 300}});
  ReadAll(*store_, {Whole(1)});
  ReadAll(*store_, {Whole(2)});
  ReadAll(*store_, {Whole(3)});
  ReadAll(*store_, {Whole(1)});
  EXPECT_EQ(decoder_->decodes(), 3);
  ReadAll(*store_, {Whole(4)});  // 2 was used longest ago.
  ReadAll(*store_, {Whole(1)});
  EXPECT_EQ(decoder_->decodes(), 4);
  ReadAll(*store_, {Whole(2)});
  EXPECT_EQ(decoder_->decodes(), 5);
}

TEST_F(DecodedStoreLimitsTest, DecodesAtOnceWhatHasRoomAndOneThatHasNone) {
  Open({.limits = {.decoding_bytes_max = 10}});
  decoder_->Hold(true);
  std::vector<AlignedBuffer> buffers;
  std::vector<std::promise<Status>> answers(5);
  for (std::uint64_t id = 4; id < 9; ++id) buffers.emplace_back(id);
  for (std::uint64_t id = 4; id < 9; ++id) {
    std::vector<ReadRequest> one;
    one.push_back(Ask(id, buffers[id - 4], answers[id - 4]));
    store_->Read(std::move(one), {});
  }
  decoder_->AwaitDecodes(2);  // 4 and 5; 6 has no room
  EXPECT_EQ(decoder_->decodes(), 2);
  decoder_->Hold(false);
  for (std::promise<Status>& each : answers) EXPECT_TRUE(each.get_future().get().ok());
  EXPECT_LE(decoder_->most_bytes(), 10u);
  ReadAll(*store_, {Whole(50)});
  EXPECT_EQ(decoder_->most_bytes(), 50u);
}

TEST_F(DecodedStoreLimitsTest, AnEmptyRangeDecodesNothing) {
  Open({});
  const std::vector<ReadAnswer> answers =
      ReadAll(*store_, {{ObjectId{5}, {0, 0}}, {ObjectId{5}, {5, 0}}, {ObjectId{5}, {6, 0}}});
  EXPECT_TRUE(answers[0].status.ok());
  EXPECT_TRUE(answers[1].status.ok());
  EXPECT_EQ(answers[2].status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(decoder_->decodes(), 0);
}

TEST_F(DecodedStoreLimitsTest, AReaderThatComesAfterAllOthersStoppedIsNotCancelled) {
  Open({});
  decoder_->Hold(true);
  const AlignedBuffer first(5);
  const AlignedBuffer second(5);
  std::promise<Status> stopped;
  std::promise<Status> read;
  std::stop_source stop;
  std::vector<ReadRequest> one;
  one.push_back(Ask(5, first, stopped));
  store_->Read(std::move(one), stop.get_token());
  decoder_->AwaitDecodes(1);
  stop.request_stop();
  // As if the decoder had seen that nobody wants it before the second reader came.
  decoder_->CancelNext();
  std::vector<ReadRequest> other;
  other.push_back(Ask(5, second, read));
  store_->Read(std::move(other), {});
  decoder_->Hold(false);
  EXPECT_EQ(stopped.get_future().get().code(), StatusCode::kCancelled);
  EXPECT_EQ(read.get_future().get().ToString(), "OK");
  EXPECT_EQ(decoder_->decodes(), 2);
}

// Object N decodes to 100 + N bytes. Counts the bytes that are alive, and those of decodes.
class LiveDecoder final : public ObjectDecoder {
 public:
  explicit LiveDecoder(std::shared_ptr<std::atomic<std::uint64_t>> peak) : peak_(std::move(peak)) {}
  [[nodiscard]] std::string Name(ObjectId object) const override { return ObjectName(object); }
  [[nodiscard]] Result<std::uint64_t> DecodedSize(ObjectId object) const override {
    return 100 + Raw(object);
  }
  [[nodiscard]] Result<std::uint64_t> DecodeBytes(ObjectId object) const override {
    return 100 + Raw(object) + kNeeded;
  }
  [[nodiscard]] Status CheckObject(ObjectId /*object*/) override { return {}; }
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& /*wanted*/) override {
    const std::uint64_t size = 100 + Raw(object);
    const auto live = live_;
    Took(size + kNeeded);
    const std::shared_ptr<std::string> bytes(new std::string(size, 'x'), [live](std::string* made) {
      *live -= made->size();
      delete made;
    });
    std::this_thread::yield();
    *live -= kNeeded;
    return DecodedBytes{
        .owner = bytes, .bytes = std::as_bytes(std::span(*bytes)), .charged_bytes = size};
  }

 private:
  static constexpr std::uint64_t kNeeded = 50;

  void Took(std::uint64_t bytes) {
    const std::uint64_t live = *live_ += bytes;
    std::uint64_t peak = *peak_;
    while (live > peak && !peak_->compare_exchange_weak(peak, live)) {
    }
  }

  const std::shared_ptr<std::atomic<std::uint64_t>> live_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  const std::shared_ptr<std::atomic<std::uint64_t>> peak_;
};

TEST(DecodedStoreMemoryTest, NeverHoldsMoreThanItsLimitsWhateverIsRead) {
  Prng draw(3, 0, RandomStream::kOrder);
  for (int round = 0; round < 30; ++round) {
    const auto peak = std::make_shared<std::atomic<std::uint64_t>>(0);
    TestExecutor executor(4);
    const DecodedLimits limits{.kept_bytes_max = 120 + draw.Below(600),
                               .decoding_bytes_max = 170 + draw.Below(600)};
    DecodedStore store(std::make_unique<LiveDecoder>(peak), executor, {.limits = limits});
    std::vector<Extent> extents;
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t offset = draw.Below(100);
      extents.push_back({ObjectId{draw.Below(20)}, {offset, draw.Below(101 - offset)}});
    }
    for (const ReadAnswer& answer : ReadAll(store, extents)) ASSERT_TRUE(answer.status.ok());
    EXPECT_LE(*peak, limits.kept_bytes_max + limits.decoding_bytes_max);
    EXPECT_GE(store.stats().held_bytes_peak, *peak);
    EXPECT_LE(store.stats().held_bytes_peak, limits.kept_bytes_max + limits.decoding_bytes_max);
  }
}

}  // namespace
}  // namespace headrace
