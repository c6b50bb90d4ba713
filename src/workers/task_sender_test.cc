#include "workers/task_sender.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/batch/batch_memory.h"
#include "gtest/gtest.h"
#include "workers/worker_channel.h"
#include "workers/worker_messages.h"

namespace headrace {
namespace {

// One worker, whose side the test reads.
class TaskSenderTest : public ::testing::Test {
 protected:
  TaskSenderTest() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()), 0);
    connections_.push_back(IpcConnection::FromFd(UniqueFd(fds[0])).value());
    worker_ = WorkerChannel::Make(UniqueFd(fds[1]), ::getpid()).value();
    schema_.push_back({.name = "bytes", .row_bytes = 4});
  }

  // A batch of samples 10, 11, ...: one row of four bytes each, in a memory of its own.
  static Batch MakeBatch(const std::string& rows) {
    Batch batch;
    const auto pool = BufferPool::MakeShared(kMiB).value();
    batch.memory = std::make_shared<BatchMemory>();
    batch.memory->rows = pool->Acquire(rows.size()).value();
    std::memcpy(batch.memory->rows.bytes().data(), rows.data(), rows.size());
    batch.fields.push_back({.packed = batch.memory->rows.bytes().first(rows.size())});
    for (std::uint64_t i = 0; i < rows.size() / 4; ++i) batch.samples.push_back(SampleId{10 + i});
    return batch;
  }
  static TransformedBatch OutputOf(const Batch& batch) {
    return {.epoch = 2, .step = 5, .samples = batch.samples};
  }

  WorkerChannel::Received Received() {
    auto received = worker_->Receive();
    EXPECT_TRUE(received.ok() && received.value().has_value());
    for (const auto& [number, memory] : received.value()->fresh) known_[number] = memory;
    return *std::move(received).value();
  }

  std::vector<BatchField> schema_;
  TaskSender::Connections connections_;
  std::unique_ptr<WorkerChannel> worker_;
  std::map<std::uint64_t, std::shared_ptr<SharedMemory>> known_;
};

TEST_F(TaskSenderTest, AWorkerFindsTheRowsOfItsTaskInTheMemoryThatCameWithIt) {
  TaskSender sender(schema_, connections_);
  const Batch batch = MakeBatch("zeroonestwosx");
  EXPECT_TRUE(sender
                  .Compute(0, {.number = 7, .first = 1, .rows = 2}, batch, OutputOf(batch),
                           /*direct=*/false)
                  .ok());
  const WorkerChannel::Received received = Received();
  WireReader body("a task", received.body);
  std::vector<std::uint64_t> words(6);
  for (std::uint64_t& word : words) word = body.TakeU64();
  const auto compute = static_cast<std::uint64_t>(TaskMessage::kCompute);
  EXPECT_EQ(words, (std::vector<std::uint64_t>{compute, 7, 2, 5, 1, 2}));
  EXPECT_FALSE(body.TakeBool()) << "a part of the batch";
  EXPECT_TRUE(body.TakeBytes(100).empty()) << "no layout: it buffers the results";
  EXPECT_EQ(body.TakeU64(), 11U);
  EXPECT_EQ(body.TakeU64(), 12U);
  const std::uint64_t memory = body.TakeU64();
  const std::uint64_t offset = body.TakeU64();
  EXPECT_EQ(body.remaining_bytes(), 0U);
  ASSERT_EQ(known_.count(memory), 1U);
  const std::span<const std::byte> rows = known_[memory]->bytes().subspan(offset, 8);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(rows.data()), 8), "onestwos");
}

TEST_F(TaskSenderTest, AMemoryIsSentOnceAndTheWorkerIsToldWhenItIsGone) {
  TaskSender sender(schema_, connections_);
  {
    const Batch batch = MakeBatch("zeroones");
    EXPECT_TRUE(sender.Compute(0, {.number = 1, .rows = 1}, batch, OutputOf(batch), false).ok());
    EXPECT_TRUE(
        sender.Compute(0, {.number = 2, .first = 1, .rows = 1}, batch, OutputOf(batch), false)
            .ok());
    EXPECT_EQ(Received().fresh.size(), 1U);
    EXPECT_TRUE(Received().fresh.empty()) << "it knows the memory";
  }
  const Batch next = MakeBatch("twos");
  EXPECT_TRUE(sender.Compute(0, {.number = 3, .rows = 1}, next, OutputOf(next), false).ok());
  const WorkerChannel::Received received = Received();
  EXPECT_EQ(received.gone, std::vector<std::uint64_t>{1});
  ASSERT_EQ(received.fresh.size(), 1U);
  EXPECT_EQ(received.fresh.front().first, 2U) << "numbers are not used again";
}

// A message of more than 32 KiB needs a descriptor of its own.
TEST_F(TaskSenderTest, AMessageThatCannotBeSentSaysSoAndItsMemoryIsSentWithTheNext) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizer of virtual calls needs descriptors of its own";
#endif
#endif
  TaskSender sender(schema_, connections_);
  const Batch batch = MakeBatch(std::string(std::size_t{4} * 5000, 'x'));
  const TransformedBatch out = OutputOf(batch);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status sent = sender.Compute(0, {.number = 1, .rows = 5000}, batch, out, false);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(sent.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(sent.message().find("sending it a task: "), std::string::npos) << sent.message();
  EXPECT_TRUE(sender.Compute(0, {.number = 2, .rows = 1}, batch, out, false).ok());
  EXPECT_EQ(Received().fresh.size(), 1U);
}

TEST_F(TaskSenderTest, AWorkerThatHasEndedIsUnavailable) {
  TaskSender sender(schema_, connections_);
  worker_.reset();
  EXPECT_EQ(sender.Forget(0, 1).code(), StatusCode::kUnavailable);
}

TEST_F(TaskSenderTest, AWorkerThatIsClosedGetsNothingMore) {
  TaskSender sender(schema_, connections_);
  sender.Close(0);
  EXPECT_TRUE(sender.Forget(0, 1).ok());
  connections_.front().reset();
  const auto received = worker_->Receive();
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  EXPECT_FALSE(received.value().has_value()) << "a message came before the end";
}

}  // namespace
}  // namespace headrace
