#include "workers/worker_host.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace headrace {
namespace {

// A loader without batches, which says what was asked of it.
class FakeLoader final : public BatchSource {
 public:
  [[nodiscard]] const SessionFacts& facts() const override { return facts_; }
  Status Start(Position /*position*/) override { return Status(); }
  Status StartList(ListOrderOptions /*list*/) override { return Status(); }
  Result<TakenBatch> Next(std::int64_t /*timeout_ns*/) override {
    ++nexts;
    return TakenBatch{.ended = true};
  }
  bool Stop(std::int64_t timeout_ns) override {
    stops.push_back(timeout_ns);
    on_stop();
    return reads_ended;
  }
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const override { return ns - 1000; }
  void Abandon() override {}
  Result<std::vector<PlannedRow>> Explain(Position /*position*/) const override { return Rows(); }
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> /*ids*/) const override {
    return Rows();
  }
  [[nodiscard]] Result<LoaderStats> stats() const override { return LoaderStats(); }
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const override { return {}; }
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const override {
    return std::vector<StepTime>();
  }
  [[nodiscard]] Result<std::vector<PreprocessRow>> decode_times() const override {
    return std::vector<PreprocessRow>();
  }

  std::atomic<int> nexts = 0;
  std::vector<std::int64_t> stops;
  bool reads_ended = true;
  std::function<void()> on_stop = [] {};

 private:
  using Rows = std::vector<PlannedRow>;
  const SessionFacts facts_{};
};

class WorkerHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    worker_ = UniqueFd(ends[1]);
    WorkerPool::Connections connections;
    connections.push_back(IpcConnection::FromFd(UniqueFd(ends[0])).value());
    std::shared_ptr<WorkerPool> pool = WorkerPool::Make({}, std::move(connections)).value();
    host_.emplace(std::move(pool), loader_);
  }
  void TearDown() override { host_->Close(); }

  // What a run comes to if another thread calls `between` while the loader starts it.
  Status StartWhile(const std::function<void()>& between) {
    std::binary_semaphore starts(0);
    std::binary_semaphore goes_on(0);
    Status started;
    {
      std::jthread starter([&] {
        started = host_->Start(host_->Prepare(), [&](BatchSource& /*loader*/) {
          starts.release();
          goes_on.acquire();
          return Status();
        });
      });
      starts.acquire();
      between();
      goes_on.release();
    }
    return started;
  }

  const std::shared_ptr<FakeLoader> loader_ = std::make_shared<FakeLoader>();
  UniqueFd worker_;
  std::optional<WorkerHost> host_;
};

TEST_F(WorkerHostTest, ARunThatStartsGivesBatchesToThePool) {
  EXPECT_TRUE(host_->Start(host_->Prepare(), [](BatchSource&) { return Status(); }).ok());
  const Result<WorkerPool::Taken> taken = host_->lease().pool->Next(-1);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken.value().ended);
  EXPECT_EQ(loader_->nexts, 1);
}

TEST_F(WorkerHostTest, ClosingCallsOffARunThatStarts) {
  EXPECT_EQ(StartWhile([&] { host_->Close(); }).code(), StatusCode::kCancelled);
  EXPECT_EQ(host_->lease().pool, nullptr);
  EXPECT_EQ(loader_->nexts, 0);
}

TEST_F(WorkerHostTest, TakingTheLoaderAwayCallsOffARunThatStarts) {
  EXPECT_EQ(StartWhile([&] { host_->Attach(nullptr); }).code(), StatusCode::kCancelled);
  EXPECT_EQ(host_->lease().loader, nullptr);
  EXPECT_EQ(loader_->nexts, 0);
}

TEST_F(WorkerHostTest, StoppingCallsOffARunThatStarts) {
  EXPECT_EQ(StartWhile([&] { host_->Stop(0); }).code(), StatusCode::kCancelled);
  EXPECT_EQ(loader_->nexts, 0);
}

TEST_F(WorkerHostTest, ANewerRunCallsOffOneThatStarts) {
  WorkerHost::Lease newer;
  EXPECT_EQ(StartWhile([&] { newer = host_->Prepare(); }).code(), StatusCode::kCancelled);
  EXPECT_TRUE(host_->Start(newer, [](BatchSource&) { return Status(); }).ok());
  EXPECT_TRUE(host_->lease().pool->Next(-1).value().ended);
  EXPECT_EQ(loader_->nexts, 1);
}

TEST_F(WorkerHostTest, AnErrorOfTheLoaderIsTheErrorOfTheStart) {
  const auto failing = [](BatchSource&) { return Status(StatusCode::kOutOfRange, "no epoch"); };
  EXPECT_EQ(host_->Start(host_->Prepare(), failing).message(), "no epoch");
  EXPECT_EQ(loader_->nexts, 0);
}

TEST_F(WorkerHostTest, OnlyStoppingWaitsForReadsAndOnlyForWhatRemains) {
  loader_->reads_ended = false;
  host_->Stop(5000);
  host_->Attach(loader_);
  host_->Close();
  EXPECT_EQ(loader_->stops, (std::vector<std::int64_t>{0, 4000, 0, 0}));
}

TEST_F(WorkerHostTest, ARunIsPreparedUntilItIsOvertaken) {
  const WorkerHost::Lease older = host_->Prepare();
  loader_->reads_ended = false;
  EXPECT_FALSE(host_->AwaitRunBefore(older, 0).value());
  loader_->reads_ended = true;
  EXPECT_TRUE(host_->AwaitRunBefore(older, 0).value());

  const WorkerHost::Lease newer = host_->Prepare();
  EXPECT_TRUE(host_->Start(newer, [](BatchSource&) { return Status(); }).ok());
  loader_->stops.clear();
  bool started = false;
  const auto start = [&](BatchSource& /*loader*/) {
    started = true;
    return Status();
  };
  EXPECT_EQ(host_->AwaitRunBefore(older, 0).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(host_->Start(older, start).code(), StatusCode::kCancelled);
  EXPECT_FALSE(started);
  EXPECT_EQ(loader_->stops, std::vector<std::int64_t>());
  EXPECT_TRUE(host_->lease().pool->Next(-1).value().ended);
}

TEST_F(WorkerHostTest, ARunThatTheLoaderStartedAfterItWasCalledOffIsEnded) {
  const WorkerHost::Lease prepared = host_->Prepare();
  const auto start = [&](BatchSource& /*loader*/) {
    host_->Stop(0);  // It comes too early for the loader.
    loader_->stops.clear();
    return Status();
  };
  EXPECT_EQ(host_->Start(prepared, start).code(), StatusCode::kCancelled);
  EXPECT_EQ(loader_->stops, std::vector<std::int64_t>{0});
}

TEST_F(WorkerHostTest, WhatWasCalledOffSaysWhetherTheLoaderWasClosed) {
  const WorkerHost::Lease prepared = host_->Prepare();
  host_->Stop(0);
  EXPECT_EQ(host_->AwaitRunBefore(prepared, 0).status().message(),
            "starting a run: another thread stopped it, or started another, before it began");
  host_->Close();
  EXPECT_EQ(host_->AwaitRunBefore(prepared, 0).status().message(),
            "starting a run: the loader was closed");
}

}  // namespace
}  // namespace headrace
