#include "store/rowgroups/row_group_decoder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <latch>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/decoded/decoded_store.h"
#include "store/helper_command.h"
#include "store/retry_store.h"
#include "store/rowgroups/testing/group_files.h"
#include "store/testing/reader.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kThreads = 2;

bool IsChild(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, WNOHANG) >= 0 || errno != ECHILD;
}

class RowGroupDecoderTest : public testing::Test {
 protected:
  void Add(std::uint64_t id, std::size_t size, const std::string& part = "all") {
    bytes_.push_back(RandomBytes(id, size));
    files_.Add(ObjectId{id}, bytes_.back(), part);
  }
  void Open(const std::vector<std::string>& command = GroupFiles::reader()) {
    store_ = nullptr;
    readers_ = ReaderPool::Shared(command);
    store_ = std::make_unique<DecodedStore>(
        std::make_unique<RowGroupDecoder>(files_, files_.root(), readers_), executor_,
        DecodedStoreOptions{.limits = {.kept_bytes_max = 4000}});
  }
  ReadAnswer Read(std::uint64_t id, ByteRange range) {
    return ReadAll(*store_, {{ObjectId{id}, range}}).front();
  }

  GroupFiles files_;
  std::vector<std::string> bytes_;
  TestExecutor executor_{kThreads};
  std::shared_ptr<ReaderPool> readers_;
  std::unique_ptr<DecodedStore> store_;
};

TEST_F(RowGroupDecoderTest, ReadsRangesOfManyGroupsWithAReaderAThread) {
  for (std::uint64_t id = 0; id < 9; ++id) Add(id, 1000 * id);
  Open();
  Prng draw(1, 0, RandomStream::kOrder);
  for (int round = 0; round < 5; ++round) {
    std::vector<Extent> extents;
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t id = draw.Below(bytes_.size());
      const std::uint64_t offset = draw.Below(bytes_[id].size() + 1);
      extents.push_back({ObjectId{id}, {offset, draw.Below(bytes_[id].size() - offset + 1)}});
    }
    const std::vector<ReadAnswer> answers = ReadAll(*store_, extents);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.ToString();
      const ByteRange range = extents[i].range;
      ASSERT_EQ(answers[i].bytes, bytes_[Raw(extents[i].object)].substr(range.offset, range.size));
    }
    EXPECT_LE(readers_->idle().size(), std::size_t{kThreads});
  }
}

TEST_F(RowGroupDecoderTest, ClosingTheLastStoreEndsTheReaders) {
  Add(0, 100);
  Open();
  ASSERT_TRUE(Read(0, {0, 100}).status.ok());
  const std::vector<pid_t> readers = readers_->idle();
  ASSERT_THAT(readers, SizeIs(1));
  EXPECT_EQ(ReaderPool::Shared(GroupFiles::reader()), readers_);
  store_ = nullptr;
  EXPECT_TRUE(IsChild(readers[0]));
  readers_ = nullptr;
  EXPECT_FALSE(IsChild(readers[0]));
}

TEST_F(RowGroupDecoderTest, AReaderThatEndsIsUnavailableAndSaysHow) {
  Add(0, 100, "die");
  Add(1, 100, "exit");
  Add(2, 100);
  Open();
  const ReadAnswer killed = Read(0, {0, 1});
  EXPECT_EQ(killed.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(killed.status.message(), HasSubstr("was ended by signal 9"));
  EXPECT_THAT(killed.status.message(),
              HasSubstr("reading " + files_.path(ObjectId{0}) + " bytes [0, 1): its reader"));
  const ReadAnswer exited = Read(1, {0, 1});
  EXPECT_EQ(exited.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(exited.status.message(), HasSubstr("ended with status 7"));
  EXPECT_THAT(readers_->idle(), IsEmpty());
  EXPECT_TRUE(Read(2, {0, 100}).status.ok());
}

TEST_F(RowGroupDecoderTest, AnIdleReaderThatWasKilledIsReplacedByARetry) {
  Add(0, 5000);
  Add(1, 5000);
  Add(2, 100, "die once");
  Open();
  ASSERT_TRUE(Read(0, {0, 1}).status.ok());
  const std::vector<pid_t> readers = readers_->idle();
  ASSERT_THAT(readers, SizeIs(1));
  ASSERT_EQ(::kill(readers[0], SIGKILL), 0);
  RetryStore retrying(std::move(store_), 3);
  for (const std::uint64_t id : {1U, 2U}) {
    const ReadAnswer answer = ReadAll(retrying, {{ObjectId{id}, {0, 100}}}).front();
    EXPECT_TRUE(answer.status.ok()) << answer.status.ToString();
    EXPECT_EQ(answer.bytes, bytes_[id].substr(0, 100));
  }
}

TEST_F(RowGroupDecoderTest, AReaderThatHangsIsKilledOnceNobodyWantsItsBytes) {
  Add(0, 100, "hang");
  Add(1, 100);
  Open();
  std::stop_source stop;
  AlignedBuffer buffer(100);
  std::latch answered(1);
  Status status;
  std::vector<ReadRequest> requests;
  requests.push_back({.extent = {ObjectId{0}, {0, 100}},
                      .buffer = buffer.bytes(),
                      .done = [&](const Result<std::span<std::byte>>& data) {
                        status = data.status();
                        answered.count_down();
                      }});
  store_->Read(std::move(requests), stop.get_token());
  EXPECT_TRUE(Read(1, {0, 100}).status.ok());  // by the other thread and reader
  stop.request_stop();
  answered.wait();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(readers_->idle(), SizeIs(1));
}

TEST_F(RowGroupDecoderTest, AnotherSizeAndAnswersOfNoSenseAreDataLoss) {
  Add(0, 100, "short");
  Add(1, 100, "garbage");
  Open();
  const ReadAnswer other = Read(0, {0, 1});
  EXPECT_EQ(other.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(other.status.message(), HasSubstr("it decodes to 99 bytes, the index says 100"));
  EXPECT_THAT(readers_->idle(), SizeIs(1));
  EXPECT_EQ(Read(1, {0, 1}).status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(readers_->idle(), IsEmpty());
}

TEST_F(RowGroupDecoderTest, AnErrorOfTheReaderIsThatOfTheRead) {
  Add(0, 100, "refuse");
  Open();
  const ReadAnswer answer = Read(0, {0, 1});
  EXPECT_EQ(answer.status.code(), StatusCode::kNotFound);
  EXPECT_THAT(answer.status.message(), HasSubstr("bytes [0, 1): no such group"));
  EXPECT_THAT(readers_->idle(), SizeIs(1));
}

TEST_F(RowGroupDecoderTest, AFileThatChangedIsFoundOut) {
  Add(0, 100);
  Open();
  WriteFile(files_.path(ObjectId{0}), "other bytes");
  EXPECT_EQ(Read(0, {0, 1}).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->CheckObject(ObjectId{0}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(RowGroupDecoderTest, AnObjectIsReadByTheReaderAloneWhichComparesItsVersion) {
  Add(0, 100);
  files_.MoveToObjects(/*version=*/7);
  Open();
  EXPECT_EQ(Read(0, {1, 98}).bytes, bytes_[0].substr(1, 98));
  EXPECT_TRUE(store_->CheckObject(ObjectId{0}).ok());
  EXPECT_TRUE(Read(0, {0, 0}).status.ok());
  files_.MoveToObjects(/*version=*/8);
  Open();
  const ReadAnswer changed = Read(0, {0, 1});
  EXPECT_EQ(changed.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(changed.status.message(),
            "reading s3://" + files_.path(ObjectId{0}) + " bytes [0, 1): it has changed");
  EXPECT_EQ(store_->CheckObject(ObjectId{0}).message(),
            "opening s3://" + files_.path(ObjectId{0}) + ": it has changed");
}

TEST_F(RowGroupDecoderTest, ANameWithoutAPartIsDataLoss) {
  Add(0, 100);
  Open();
  for (const char* const name : {"fake:100/a", "fake:100:/a", "fake::1/a", "fake/a", "a"}) {
    files_.Rename(ObjectId{0}, name);
    const ReadAnswer answer = Read(0, {0, 1});
    EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(answer.status.message(), HasSubstr("CODING:BYTES:PART/PATH"));
  }
}

TEST_F(RowGroupDecoderTest, ACommandThatCannotRunIsSaidToBeSo) {
  Add(0, 100);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{}, {"/nowhere/python", "-c", "x"}}) {
    Open(command);
    const ReadAnswer answer = Read(0, {0, 1});
    EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(answer.status.message(), HasSubstr("starting a reader of row groups"));
    const std::string cause =
        " (/nowhere/python): No such file or directory; see that this program is there and runs";
    EXPECT_EQ(answer.status.message().ends_with(cause), !command.empty());
  }
  SetHelperCommand({"a", "b"});
  EXPECT_EQ(HelperCommand(kGroupReaderProgram),
            (std::vector<std::string>{"a", "b", "group-reader"}));
  SetHelperCommand({});
}

}  // namespace
}  // namespace headrace
