// Sessions of two nodes that send each other samples, with a network between them that the test
// holds up.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loader/batch_queue.h"
#include "loader/session/other_nodes.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"
#include "loader/testing/bytes_dataset.h"
#include "peer/leased_samples.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kExchangeSamples = 60;
constexpr std::uint64_t kExchangeBatch = 5;
constexpr std::uint64_t kExchangeSteps = kExchangeSamples / kExchangeBatch / 2;

// What both nodes share. One mutex: nothing here is fast.
struct Network {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> rounds = {0, 0};
  LeasedSamples leased[2];
};

// The other node, straight from its session.
class Joined final : public OtherNodes {
 public:
  Joined(Network& network, NodeNumber own) : network_(network), own_(own), source_(*this) {}

  FetchSource& source() override { return source_; }
  Result<std::vector<NodeFacts>> Agree(const NodeFacts& own) override {
    std::unique_lock lock(network_.mutex);
    const std::uint64_t round = ++network_.rounds[own_];
    network_.changed.notify_all();
    network_.changed.wait(lock, [&] { return network_.rounds[1 - own_] >= round; });
    return std::vector<NodeFacts>{own, own};
  }
  [[nodiscard]] std::uint64_t round() const override {
    const std::lock_guard lock(network_.mutex);
    return network_.rounds[own_];
  }
  void StopTaking(std::uint64_t /*round*/) override { ++stops_taking; }
  bool AnyTakes() override { return any_takes; }
  [[nodiscard]] std::int64_t patience_ns() const override { return patience; }
  void Plan(const StepSums& /*sums*/) override {}
  void Give(HeldSamples* held) override { network_.leased[own_].Give(held); }
  [[nodiscard]] NodeTraffic traffic() const override { return {}; }

  // From now on what this node asks for stays on its way.
  void Hold() {
    const std::lock_guard lock(network_.mutex);
    holds_ = true;
  }
  void LetGo() {
    std::deque<std::function<void()>> held;
    {
      const std::lock_guard lock(network_.mutex);
      holds_ = false;
      held.swap(held_);
    }
    for (const auto& each : held) each();
  }
  ParcelPart AwaitAsked() {
    std::unique_lock lock(network_.mutex);
    network_.changed.wait(lock, [&] { return asked_last_.has_value(); });
    return *asked_last_;
  }
  void AwaitHeld() {
    std::unique_lock lock(network_.mutex);
    network_.changed.wait(lock, [&] { return !held_.empty(); });
  }

  std::atomic<bool> any_takes = true;
  std::atomic<int> stops_taking = 0;
  std::atomic<std::int64_t> patience = 1'000 * kNsPerSecond;

 private:
  class Source final : public FetchSource {
   public:
    explicit Source(Joined& joined) : joined_(joined) {}
    [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override {
      return fetch.bytes();
    }
    void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
              const Done& done) override {
      for (Fetch* const fetch : fetches) joined_.Ask(*fetch, done);
    }

   private:
    Joined& joined_;
  };

  void Ask(Fetch& fetch, const FetchSource::Done& done) {
    const auto& from = fetch.Reads<PartAtNode>();
    const auto ask = [this, &fetch, &from, &done] {
      network_.leased[from.node].TakeParcel(
          own_, from.part, [&fetch, &done](Result<OwnedBytes> bytes) {
            if (!bytes.ok()) return done(fetch, bytes.status());
            std::ranges::copy(bytes.value().bytes(), fetch.memory().begin());
            done(fetch, fetch.memory().first(bytes.value().size));
          });
    };
    {
      const std::lock_guard lock(network_.mutex);
      asked_last_ = from.part;
      if (holds_) held_.emplace_back(ask);
      network_.changed.notify_all();
      if (holds_) return;
    }
    ask();
  }

  Network& network_;
  const NodeNumber own_;
  Source source_;
  // Under Network::mutex.
  std::optional<ParcelPart> asked_last_;
  bool holds_ = false;
  std::deque<std::function<void()>> held_;
};

class SessionExchangeTest : public ::testing::Test {
 public:
  // Each run waits for what the other one gives, or refuses.
  ~SessionExchangeTest() override {
    for (const auto& each : nodes_) {
      each->any_takes = false;
      each->LetGo();
    }
    for (const auto& each : sessions_) static_cast<void>(each->Stop(0));
    for (const auto& each : sessions_) EXPECT_TRUE(each->Stop(-1));
  }

 protected:
  SessionExchangeTest() {
    for (NodeNumber node = 0; node < 2; ++node) {
      nodes_[node] = std::make_shared<Joined>(network_, node);
      LoaderOptions options;
      options.job = {
          .batch_size = kExchangeBatch, .world_size = 2, .rank = node, .seed = 5, .epochs = 1};
      options.threads = 1;
      options.io = "threads";
      options.order = {
          .name = "epoch",
          .parameters = {{"homes", std::int64_t{2}}, {"block_samples", std::int64_t{3}}}};
      options.nodes = PeerListen{};
      auto config = ResolveConfig(dataset_.index(), options);
      EXPECT_TRUE(config.ok()) << config.status().ToString();
      EXPECT_TRUE(config.value().options.job.exchange);
      auto opened =
          Session::Open(dataset_.index(), std::move(config).value(), {}, {}, nodes_[node]);
      EXPECT_TRUE(opened.ok()) << opened.status().ToString();
      sessions_[node] = std::move(opened).value();
    }
  }

  // Both nodes begin a run.
  void Begin() {
    std::vector<std::future<Result<std::shared_ptr<SessionRun>>>> begun;
    for (NodeNumber node = 0; node < 2; ++node) {
      queues_[node] = std::make_unique<BatchQueue>();
      begun.push_back(std::async(std::launch::async, [this, node] {
        return sessions_[node]->Start({}, {queues_[node].get()});
      }));
    }
    for (NodeNumber node = 0; node < 2; ++node) {
      auto run = begun[node].get();
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      runs_[node] = std::move(run).value();
    }
  }

  // The next batch, whose bytes are those of its samples; nothing: the end, or an error.
  Result<bool> TakeOne(NodeNumber node) {
    if (!queues_[node]->ready()) runs_[node]->OnWaiting(0);
    HEADRACE_ASSIGN_OR_RETURN(TakenBatch taken, queues_[node]->Take(kHangNs));
    if (taken.ended) return false;
    const Batch& batch = *taken.batch;
    for (std::size_t slot = 0; slot < batch.samples.size(); ++slot) {
      const std::span<std::byte> row = batch.row(sessions_[node]->facts().schema, 0, slot);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()),
                dataset_.Payload(Raw(batch.samples[slot])));
      came_.insert(Raw(batch.samples[slot]));
    }
    runs_[node]->OnTaken(0, batch, batch.times.handed_ns);
    return true;
  }
  void TakeAll(NodeNumber node, std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      const Result<bool> taken = TakeOne(node);
      ASSERT_TRUE(taken.ok()) << taken.status().ToString();
      ASSERT_TRUE(taken.value()) << "the end, after " << step << " steps";
    }
  }

  // The consumer of node 0 has left after its first batch; what node 1 asks for is on its way.
  void EndTheFirstAlone() {
    nodes_[1]->Hold();
    Begin();
    nodes_[1]->AwaitHeld();
    TakeAll(0, 1);
    runs_[0]->Leave(0);
  }

  BytesDataset dataset_{{.samples = kExchangeSamples, .sample_bytes_max = 3000}};
  Network network_;
  std::shared_ptr<Joined> nodes_[2];
  std::unique_ptr<BatchQueue> queues_[2];
  std::unique_ptr<Session> sessions_[2];
  std::shared_ptr<SessionRun> runs_[2];
  std::multiset<std::uint64_t> came_;
};

TEST_F(SessionExchangeTest, ANodeThatHasEndedGivesOthersWhatTheyLackHoweverFarBehindTheyAre) {
  EndTheFirstAlone();
  EXPECT_FALSE(sessions_[0]->Stop(0));
  EXPECT_TRUE(sessions_[0]->owes());
  nodes_[1]->LetGo();
  TakeAll(1, 1);
  while (!sessions_[0]->Stop(kNsPerMs)) {
  }
  EXPECT_FALSE(sessions_[0]->owes());
  EXPECT_EQ(came_.size(), 2 * kExchangeBatch);
  EXPECT_EQ(std::set<std::uint64_t>(came_.begin(), came_.end()).size(), 2 * kExchangeBatch);
}

TEST_F(SessionExchangeTest, AStopOfARunBeforeLeavesTheNewOneAndWhatItOwes) {
  const RunTurn before = sessions_[0]->TakeTurn();
  EndTheFirstAlone();
  EXPECT_TRUE(sessions_[0]->owes());
  const int stops = nodes_[0]->stops_taking;
  EXPECT_TRUE(sessions_[0]->Stop(0, before));
  EXPECT_EQ(nodes_[0]->stops_taking, stops);
  EXPECT_TRUE(sessions_[0]->owes());
}

TEST_F(SessionExchangeTest, NobodyIsWaitedForWhoTakesNothingAnyMore) {
  EndTheFirstAlone();
  EXPECT_FALSE(sessions_[0]->Stop(0));
  nodes_[0]->any_takes = false;
  EXPECT_TRUE(sessions_[0]->Stop(-1));
}

TEST_F(SessionExchangeTest, WhoIsTooFarBehindGetsAnErrorThatNamesTheNodeAndTheRun) {
  EndTheFirstAlone();
  nodes_[0]->patience = 0;
  EXPECT_TRUE(sessions_[0]->Stop(-1));
  nodes_[1]->LetGo();
  Result<bool> taken = true;
  while (taken.ok() && taken.value()) taken = TakeOne(1);
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.status().ToString(), HasSubstr("from node 0, which alone reads them"));
  EXPECT_THAT(taken.status().ToString(), HasSubstr("has ended run 1"));
}

TEST_F(SessionExchangeTest, ARequestOfARunBeforeGetsNothingOfTheNext) {
  Begin();
  TakeAll(0, 1);
  const ParcelPart before = nodes_[1]->AwaitAsked();
  for (NodeNumber node = 0; node < 2; ++node) {
    nodes_[node]->any_takes = false;
    runs_[node]->Leave(0);
  }
  came_.clear();
  Begin();
  EXPECT_EQ(before.round, 1U);
  // As it would come if the network had kept it.
  std::promise<Status> refused;
  network_.leased[0].TakeParcel(
      1, before, [&](Result<OwnedBytes> bytes) { refused.set_value(bytes.status()); });
  const Status status = refused.get_future().get();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr("the other node is in run 1, this one in run 2"));
  auto second = std::async(std::launch::async, [this] { TakeAll(1, kExchangeSteps); });
  std::uint64_t steps = 0;
  for (; steps < kExchangeSteps; ++steps) {
    if (!queues_[0]->ready()) runs_[0]->OnWaiting(0);
    const auto taken = queues_[0]->Take(kHangNs);
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    runs_[0]->OnTaken(0, *taken.value().batch, taken.value().batch->times.handed_ns);
  }
  second.get();
  EXPECT_EQ(came_.size(), kExchangeSamples / 2);
}

TEST_F(SessionExchangeTest, ExplainNamesTheNodeThatSendsASample) {
  std::uint64_t away = 0;
  for (std::uint64_t step = 0; step < kExchangeSteps; ++step) {
    const auto rows = sessions_[0]->reports().Explain({.step = step}, 0);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    for (const PlannedRow& row : rows.value()) {
      if (row.field != "bytes") continue;
      EXPECT_TRUE(row.source == "block" || row.source == "node 1") << row.source;
      away += row.source == "node 1";
    }
  }
  Begin();
  auto second = std::async(std::launch::async, [this] { TakeAll(1, kExchangeSteps); });
  for (std::uint64_t step = 0; step < kExchangeSteps; ++step) {
    if (!queues_[0]->ready()) runs_[0]->OnWaiting(0);
    const auto taken = queues_[0]->Take(kHangNs);
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    runs_[0]->OnTaken(0, *taken.value().batch, taken.value().batch->times.handed_ns);
  }
  second.get();
  EXPECT_GT(away, 0U);
  EXPECT_EQ(sessions_[0]->reports().stats(0).value().engine.blocks.parcel_samples, away);
}

}  // namespace
}  // namespace headrace
