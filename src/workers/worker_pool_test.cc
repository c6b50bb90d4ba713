#include "workers/worker_pool.h"
#include "base/units.h"
#include "engine/batch/batch_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "workers/worker_channel.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kRowBytes = 8;  // one uint64 a row: the number of its sample

std::vector<BatchField> Schema() {
  return {{.name = "number",
           .dtype = DType::kInt64,
           .shape = {},
           .ragged = false,
           .row_bytes = kRowBytes}};
}

// A source of `count` batches, whose rows say which sample they are; then the end, or `error`.
class CountingSource {
 public:
  explicit CountingSource(std::uint64_t count, Status error = Status())
      : count_(count), error_(std::move(error)) {
    auto made = BufferPool::MakeShared(std::uint64_t{1} << 20);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    memory_ = std::move(made).value();
  }

  Result<TakenBatch> operator()() {
    if (step_ == count_) {
      if (!error_.ok()) return error_;
      return TakenBatch{.ended = true};
    }
    auto batch = std::make_shared<Batch>();
    batch->step = step_++;
    const std::uint64_t rows = 10 + batch->step % 3;
    std::optional<Buffer> buffer = memory_->Acquire(rows * kRowBytes);
    if (!buffer.has_value()) return Status(StatusCode::kResourceExhausted, "no room");
    batch->memory = std::make_shared<BatchMemory>();
    batch->memory->rows = std::move(*buffer);
    const std::span<std::byte> packed = batch->memory->rows.bytes().first(rows * kRowBytes);
    batch->fields.push_back({.packed = packed});
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t number = batch->step * 100 + row;
      batch->samples.push_back(SampleId{number});
      std::memcpy(packed.data() + row * kRowBytes, &number, kRowBytes);
    }
    return TakenBatch{.batch = std::move(batch)};
  }

 private:
  const std::uint64_t count_;
  const Status error_;
  std::shared_ptr<BufferPool> memory_;
  std::uint64_t step_ = 0;
};

// The beginning of one.
WireWriter MakeReply(ReplyMessage kind, std::initializer_list<std::uint64_t> numbers) {
  WireWriter writer;
  writer.PutU64(static_cast<std::uint64_t>(kind));
  for (const std::uint64_t number : numbers) writer.PutU64(number);
  return writer;
}

// The worker's side in a thread of the test: rows are doubled.
class DoublingWorker {
 public:
  // What it does instead of computing a task; false: compute it. `words`: the numbers of kCompute,
  // with the bytes of the layout in its place.
  using Instead = std::function<bool(WorkerChannel&, const std::vector<std::uint64_t>& words)>;

  DoublingWorker(UniqueFd socket, Instead instead)
      : instead_(std::move(instead)), thread_([this, fd = std::move(socket)]() mutable {
          auto channel = WorkerChannel::Make(std::move(fd), getpid());
          ASSERT_TRUE(channel.ok()) << channel.status().ToString();
          Serve(*channel.value());
        }) {}

 private:
  static void Reply(WorkerChannel& channel, const WireWriter& reply) {
    static_cast<void>(channel.Send(reply.bytes()));  // The host may be gone.
  }

  static WireWriter Done(std::uint64_t task, std::uint64_t busy_ns) {
    WireWriter done = MakeReply(ReplyMessage::kDone, {task, busy_ns, busy_ns / 2});
    done.PutString("");
    return done;
  }

  void Serve(WorkerChannel& channel) {
    WireWriter ready = MakeReply(ReplyMessage::kReady, {});
    ready.PutU32(1);
    Reply(channel, ready);
    for (;;) {
      Result<std::optional<WorkerChannel::Received>> received = channel.Receive();
      ASSERT_TRUE(received.ok()) << received.status().ToString();
      if (!received.value().has_value()) return;
      for (const auto& [number, memory] : received.value()->fresh) memories_[number] = memory;
      for (const std::uint64_t number : received.value()->gone) memories_.erase(number);
      WireReader body("a task", received.value()->body);
      std::vector<std::uint64_t> words;
      const auto take = [&] { return words.emplace_back(body.TakeU64()); };
      if (body.remaining_bytes() == 0) continue;
      if (take() == static_cast<std::uint64_t>(TaskMessage::kCompute)) {
        for (int i = 0; i < 5; ++i) take();
        EXPECT_FALSE(body.TakeBool()) << "whole";
        words.push_back(body.TakeBytes(kIpcMessageBytesMax).size());
      }
      while (body.remaining_bytes() > 0) take();
      if (!Answer(channel, words)) return;
    }
  }

  bool Answer(WorkerChannel& channel, const std::vector<std::uint64_t>& words) {
    if (words[0] == static_cast<std::uint64_t>(TaskMessage::kCompute)) {
      if (instead_ && instead_(channel, words)) return true;
      return Compute(channel, words);
    }
    const std::uint64_t task = words[1];
    if (words[2] == 0) {
      buffered_.erase(task);
      return true;
    }
    const std::vector<std::uint64_t>& rows = buffered_.at(task);
    std::memcpy(memories_.at(words[4])->bytes().data() + words[5], rows.data(),
                rows.size() * kRowBytes);
    buffered_.erase(task);
    Reply(channel, Done(task, 0));
    return true;
  }

  bool Compute(WorkerChannel& channel, const std::vector<std::uint64_t>& words) {
    const std::uint64_t task = words[1];
    const std::uint64_t rows = words[5];
    const bool direct = words[6] > 0;
    const std::size_t field = 7 + rows;
    std::vector<std::uint64_t> results(rows);
    std::memcpy(results.data(), memories_.at(words[field])->bytes().data() + words[field + 1],
                rows * kRowBytes);
    for (std::uint64_t& result : results) result *= 2;
    if (direct) {
      std::memcpy(memories_.at(words[field + 2])->bytes().data() + words[field + 3], results.data(),
                  rows * kRowBytes);
      Reply(channel, Done(task, 100));
      return true;
    }
    buffered_[task] = results;
    WireWriter shaped = MakeReply(ReplyMessage::kShaped, {task, 100, 50});
    shaped.PutU32(static_cast<std::uint32_t>(rows));
    AppendLayout({.tree = "t", .leaves = {{.dtype = "uint64", .item_bytes = 8}}}, shaped);
    Reply(channel, shaped);
    return true;
  }

  const Instead instead_;
  std::map<std::uint64_t, std::shared_ptr<SharedMemory>> memories_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> buffered_;
  std::jthread thread_;
};

class WorkerPoolTest : public ::testing::Test {
 protected:
  void TearDown() override {
    if (pool_ != nullptr) pool_->Halt([] {});
    pool_.reset();
  }

  void Start(std::size_t workers, const DoublingWorker::Instead& instead = nullptr,
             bool all_alive = true) {
    WorkerPool::Connections connections;
    for (std::size_t i = 0; i < workers; ++i) {
      std::array<int, 2> ends{};
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
      UniqueFd theirs(ends[1]);
      auto ours = IpcConnection::FromFd(UniqueFd(ends[0]));
      ASSERT_TRUE(ours.ok()) << ours.status().ToString();
      connections.push_back(std::move(ours).value());
      if (all_alive || i > 0) {
        workers_.push_back(std::make_unique<DoublingWorker>(std::move(theirs), instead));
      }
    }
    auto pool = WorkerPool::Make(
        {.schema = Schema(), .batches_max = batches_max_, .memory_bytes = memory_bytes_},
        std::move(connections));
    ASSERT_TRUE(pool.ok()) << pool.status().ToString();
    pool_ = std::move(pool).value();
  }

  void Begin(std::uint64_t count, Status error = Status()) {
    auto source = std::make_shared<CountingSource>(count, std::move(error));
    pool_->Begin([source](std::int64_t) { return (*source)(); });
  }

  // The rows of the next batch.
  std::vector<std::uint64_t> NextRows() {
    Result<WorkerPool::Taken> taken = pool_->Next(-1);
    EXPECT_TRUE(taken.ok() && taken.value().batch != nullptr) << taken.status().ToString();
    if (!taken.ok() || taken.value().batch == nullptr) return {};
    held_.push_back(std::move(taken).value().batch);
    const TransformedBatch& batch = *held_.back();
    std::vector<std::uint64_t> rows(batch.samples.size());
    std::memcpy(rows.data(), batch.memory.bytes().data() + batch.layout.leaves[0].offset,
                rows.size() * kRowBytes);
    return rows;
  }

  static std::vector<std::uint64_t> Expected(std::uint64_t step) {
    std::vector<std::uint64_t> rows;
    for (std::uint64_t row = 0; row < 10 + step % 3; ++row) rows.push_back(2 * (step * 100 + row));
    return rows;
  }

  // After the batches before it.
  TransformFailure NextFailure() {
    for (;;) {
      Result<WorkerPool::Taken> taken = pool_->Next(-1);
      EXPECT_TRUE(taken.ok() && !taken.value().ended) << taken.status().ToString();
      if (!taken.ok() || taken.value().ended) return {};
      if (taken.value().failure.has_value()) return *std::move(taken).value().failure;
    }
  }

  std::uint32_t batches_max_ = 3;
  std::uint64_t memory_bytes_ = kMiB;
  std::vector<std::unique_ptr<DoublingWorker>> workers_;
  std::unique_ptr<WorkerPool> pool_;  // Dies first: then the workers see their end.
  std::vector<std::unique_ptr<TransformedBatch>> held_;
};

TEST_F(WorkerPoolTest, BatchesComeInOrderWithWhatWorkersMadeOfThem) {
  Start(3);
  Begin(20);
  for (std::uint64_t step = 0; step < 20; ++step) EXPECT_EQ(NextRows(), Expected(step)) << step;
  const Result<WorkerPool::Taken> taken = pool_->Next(-1);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken.value().ended);
  EXPECT_EQ(pool_->stats().batches, 20U);
  EXPECT_GT(pool_->stats().busy_ns, 0U);
  EXPECT_EQ(pool_->stats().ran_ns, pool_->stats().busy_ns / 2);
  EXPECT_EQ(pool_->stats().threads, 3U);
}

TEST_F(WorkerPoolTest, ResultsStayWithinTheirMemoryWhereTheConsumerHoldsTwoBatches) {
  memory_bytes_ = 4 * BufferPool::ChargedBytes(1);
  batches_max_ = 8;
  Start(3);
  Begin(200);
  for (std::uint64_t step = 0; step < 200; ++step) {
    EXPECT_EQ(NextRows(), Expected(step)) << step;
    EXPECT_FALSE(held_.back()->beyond_budget) << step;
    if (held_.size() == 2) held_.erase(held_.begin());
  }
  const BufferStats memory = pool_->stats().memory;
  EXPECT_EQ(memory.capacity_bytes, memory_bytes_);
  EXPECT_LE(memory.used_bytes_peak, memory_bytes_);
  EXPECT_EQ(memory.beyond_count, 0U);
}

TEST_F(WorkerPoolTest, AConsumerThatHoldsAllMemoryGetsBatchesBeyondItOneAtATime) {
  memory_bytes_ = 3 * BufferPool::ChargedBytes(1);
  Start(2);
  Begin(10);
  for (std::uint64_t step = 0; step < 10; ++step) EXPECT_EQ(NextRows(), Expected(step)) << step;
  const BufferStats memory = pool_->stats().memory;
  EXPECT_EQ(memory.used_bytes_peak, memory_bytes_);
  EXPECT_EQ(memory.beyond_count, 7U);  // Those that it asked for, and no other.
  EXPECT_TRUE(held_.back()->beyond_budget);
  held_.clear();
  EXPECT_EQ(pool_->stats().memory.used_bytes + pool_->stats().memory.beyond_bytes, 0U);
}

TEST_F(WorkerPoolTest, ABatchLargerThanAllMemoryComesAlone) {
  memory_bytes_ = 1;
  Start(2);
  Begin(20);
  for (std::uint64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(NextRows(), Expected(step)) << step;
    held_.clear();
  }
  EXPECT_EQ(pool_->stats().memory.beyond_count, 20U);
  EXPECT_LE(pool_->stats().memory.beyond_bytes_peak, 2 * BufferPool::ChargedBytes(1));
}

// A node process says nothing when a run is stopped: who waits for its next message for ever,
// stays.
TEST_F(WorkerPoolTest, ASourceThatHasNothingIsNotWaitedForWithoutEnd) {
  Start(1);
  std::promise<std::int64_t> waits_ns;
  std::atomic<bool> asked = false;
  pool_->Begin([&](std::int64_t timeout_ns) -> Result<TakenBatch> {
    if (!asked.exchange(true)) waits_ns.set_value(timeout_ns);
    return TakenBatch{};
  });
  const std::int64_t timeout_ns = waits_ns.get_future().get();
  EXPECT_GT(timeout_ns, 0);
  EXPECT_LE(timeout_ns, 100 * kNsPerMs);
  pool_->Halt([] {});
}

TEST_F(WorkerPoolTest, AnErrorOfTheSourceComesAfterTheBatchesBeforeIt) {
  Start(2);
  Begin(3, Status(StatusCode::kDataLoss, "damaged"));
  for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(NextRows(), Expected(step));
  EXPECT_EQ(pool_->Next(-1).status().code(), StatusCode::kDataLoss);
}

TEST_F(WorkerPoolTest, AHaltedPoolBeginsAnewWithAnotherSource) {
  Start(2);
  for (int round = 0; round < 20; ++round) {
    Begin(100);
    for (std::uint64_t step = 0; step < static_cast<std::uint64_t>(round % 4); ++step) {
      EXPECT_EQ(NextRows(), Expected(step));
    }
    pool_->Halt([] {});
    EXPECT_EQ(pool_->Next(-1).status().code(), StatusCode::kCancelled);
    held_.clear();
  }
}

TEST_F(WorkerPoolTest, AHaltThatIsOvertakenByTheNextBeginLeavesItAlone) {
  Start(1);
  pool_->Halt([this] { Begin(3); });
  for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(NextRows(), Expected(step)) << step;
  EXPECT_TRUE(pool_->Next(-1).value().ended);
}

// The source of the run that was stopped may return as late as this.
TEST_F(WorkerPoolTest, WhatASourceGivesAfterTheNextBeginIsOfNoRun) {
  Start(1);
  std::promise<void> entered;
  std::promise<void> stopped;
  CountingSource late(2);
  pool_->Begin([&](std::int64_t) -> Result<TakenBatch> {
    entered.set_value();
    stopped.get_future().wait();
    static_cast<void>(late());
    return late();  // Step 1.
  });
  entered.get_future().wait();
  pool_->Halt([&] {
    Begin(3);
    stopped.set_value();
  });
  for (std::uint64_t step = 0; step < 3; ++step) EXPECT_EQ(NextRows(), Expected(step)) << step;
  EXPECT_TRUE(pool_->Next(-1).value().ended);
}

TEST_F(WorkerPoolTest, ABatchThatFailsComesInItsPlace) {
  Start(2, [](WorkerChannel& channel, const std::vector<std::uint64_t>& words) {
    if (words[3] != 2) return false;  // step
    WireWriter error = MakeReply(ReplyMessage::kError, {words[1]});
    error.PutU32(static_cast<std::uint32_t>(words[4] + 1));
    error.PutString("bad");
    error.PutString("");
    EXPECT_TRUE(channel.Send(error.bytes()).ok());
    return true;
  });
  Begin(20);
  for (std::uint64_t step = 0; step < 2; ++step) EXPECT_EQ(NextRows(), Expected(step));
  const Result<WorkerPool::Taken> taken = pool_->Next(-1);
  ASSERT_TRUE(taken.ok() && taken.value().failure.has_value());
  const TransformFailure& failure = *taken.value().failure;
  EXPECT_EQ(failure.kind, TransformFailure::Kind::kTransform);
  EXPECT_EQ(failure.text, "bad");
  ASSERT_EQ(failure.tasks.size(), 1U);
  EXPECT_EQ(failure.tasks[0].step, 2U);
  EXPECT_EQ(failure.tasks[0].first_slot, 1U);  // of all tasks' errors the first by slot
  EXPECT_EQ(Raw(failure.tasks[0].samples[0]), 201U);
  EXPECT_FALSE(pool_->broken());
}

TEST_F(WorkerPoolTest, ThoseAfterABatchThatFailsFollow) {
  Start(1, [](WorkerChannel& channel, const std::vector<std::uint64_t>& words) {
    if (words[3] != 1) return false;
    WireWriter error = MakeReply(ReplyMessage::kError, {words[1]});
    error.PutU32(static_cast<std::uint32_t>(words[4]));
    error.PutString("bad");
    error.PutString("");
    EXPECT_TRUE(channel.Send(error.bytes()).ok());
    return true;
  });
  Begin(4);
  EXPECT_EQ(NextRows(), Expected(0));
  EXPECT_EQ(NextFailure().text, "bad");
  EXPECT_EQ(NextRows(), Expected(2));
  EXPECT_EQ(NextRows(), Expected(3));
}

TEST_F(WorkerPoolTest, AHaltedPoolIsIdleOnceItsWorkersHaveAnswered) {
  std::promise<void> asked;
  std::promise<void> answer;
  std::atomic<bool> first = true;
  Start(1, [&](WorkerChannel&, const std::vector<std::uint64_t>&) {
    if (first.exchange(false)) {
      asked.set_value();
      answer.get_future().wait();
    }
    return false;
  });
  Begin(20);
  asked.get_future().wait();
  pool_->Halt([] {});
  EXPECT_FALSE(pool_->AwaitIdle(0));
  answer.set_value();
  EXPECT_TRUE(pool_->AwaitIdle(60 * kNsPerSecond));
}

TEST_F(WorkerPoolTest, AWorkerThatIsGoneIsNamedAtOnceWithItsTasks) {
  Start(1, [](WorkerChannel& channel, const std::vector<std::uint64_t>& words) {
    if (words[3] != 2) return false;
    // The first ends the connection; a second task of the step may find it gone.
    (void)channel.Send(MakeReply(ReplyMessage{99}, {}).bytes());
    return true;
  });
  Begin(20);
  const TransformFailure failure = NextFailure();
  EXPECT_EQ(failure.kind, TransformFailure::Kind::kWorkerLost);
  EXPECT_THAT(failure.text, HasSubstr("a message of unknown kind 99"));
  ASSERT_FALSE(failure.tasks.empty());
  EXPECT_EQ(failure.tasks[0].step, 2U);
  EXPECT_TRUE(pool_->broken());
}

TEST_F(WorkerPoolTest, AWorkerThatIsGoneBeforeItWasReadyCouldNotBegin) {
  Start(2, nullptr, /*all_alive=*/false);
  Begin(20);
  const TransformFailure failure = NextFailure();
  EXPECT_EQ(failure.kind, TransformFailure::Kind::kStart);
  EXPECT_EQ(failure.worker, 0U);
  EXPECT_EQ(failure.text, "");
}

}  // namespace
}  // namespace headrace
