#include "node/server/node_server.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/loader.h"
#include "ipc/connection.h"
#include "ipc/testing/raw_socket.h"
#include "loader/testing/bytes_dataset.h"
#include "node/client/remote_loader.h"
#include "node/protocol/messages.h"
#include "node/testing/node_server_fixture.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

// What the server answers to the last of these, by somebody who does not keep to the protocol.
std::string Refusal(const std::string& socket, const std::vector<ClientMessage>& messages) {
  const auto connection = IpcConnection::Connect(socket).value();
  for (const ClientMessage& message : messages) {
    EXPECT_TRUE(connection->Send(Encode(message), {}).ok());
  }
  while (true) {
    const auto received = connection->Receive();
    if (!received.ok() || !received.value().has_value()) return "nothing";
    const NodeMessage answer = DecodeNodeMessage(received.value()->bytes).value();
    if (const auto* refused = std::get_if<Refused>(&answer)) {
      return std::string(refused->status.message());
    }
  }
}

TEST_F(NodeServerTest, WhoDoesNotKeepToTheProtocolIsToldWhatComesFirst) {
  std::vector<ClientMessage> said = {ClientHello{.library = "0.0.9"}};
  Serve();
  const std::string other = Refusal(socket_, said);
  EndServer();
  EXPECT_THAT(other, HasSubstr("the rank's headrace 0.0.9 (protocol "));
  EXPECT_THAT(other, HasSubstr("): use one version for both"));
  const std::string here = other.substr(std::string("the node process is headrace ").size());
  const ClientHello hello{.library = here.substr(0, here.find(' '))};
  const std::string end = " of process " + std::to_string(::getpid()) + ": ";
  const std::vector<std::pair<ClientMessage, std::string>> early = {
      {StartRun{}, "receiving a request" + end + "it must open a job first"},
      {BatchNote{}, "receiving a note of batches" + end + "it must open a job first"},
      {OpenSession{}, "receiving the opening of job ''" + end + "the job needs a name"},
      {hello, "receiving a message of kind 0" + end + "it has said hello already"},
  };
  for (const auto& [message, refused] : early) {
    Serve();
    EXPECT_EQ(Refusal(socket_, {hello, message}), refused + "; report this defect of headrace");
    EndServer();
  }
}

// Slot s of rank r of W has position s W + r of the global batch.
TEST_F(NodeServerTest, AnyNumberOfRanksGetTheBytesOfOneWithTheSameGlobalBatch) {
  const std::vector<RowList> whole = Alone(0, OptionsOf(1));
  ASSERT_EQ(whole.size(), kSteps * kEpochs);
  for (const Row& row : whole.front()) ASSERT_EQ(row.second, dataset_.Row(row.first));
  for (const std::uint32_t ranks : {1U, 2U, 4U, 8U}) {
    Serve();
    std::vector<std::vector<RowList>> got(ranks);
    OnEachRank(ranks, [&](std::uint32_t rank) {
      const auto loader = Open(rank, OptionsOf(ranks));
      EXPECT_TRUE(loader->Start({}).ok());
      got[rank] = Drain(*loader);
    });
    WaitForEnd();
    std::vector<RowList> together(whole.size());
    for (std::size_t step = 0; step < whole.size(); ++step) {
      for (std::uint64_t i = 0; i < kGlobalBatch; ++i) {
        ASSERT_EQ(got[i % ranks].size(), whole.size()) << ranks;
        together[step].push_back(got[i % ranks][step].at(i / ranks));
      }
    }
    EXPECT_EQ(together, whole) << ranks;
  }
}

TEST_F(NodeServerTest, RanksOfEveryOrderGetWhatEachWouldGetAlone) {
  constexpr std::uint32_t kRanks = 4;
  for (const char* const order : {"batch", "epoch"}) {
    Serve();
    OnEachRank(kRanks, [&](std::uint32_t rank) {
      const auto loader = Open(rank, OptionsOf(kRanks, order));
      EXPECT_TRUE(loader->Start({}).ok());
      EXPECT_EQ(Drain(*loader), Alone(rank, OptionsOf(kRanks, order))) << order << " " << rank;
    });
    WaitForEnd();
  }
}

// Rows of this size are copied once, from where they were read beside others, or were kept; or not
// at all: small samples that the page cache holds are read into their rows.
TEST_F(NodeServerTest, WhatIsCopiedOnTheWayIntoRowsIsCountedAndTheWayToTheRankAddsNothing) {
  std::vector<LoaderOptions> ways = {OptionsOf(1), OptionsOf(1, "epoch"), OptionsOf(1)};
  ways.back().tiers.tiers = {{.capacity_bytes = kMiB}};
  for (const LoaderOptions& options : ways) {
    const auto alone = Loader::Open(dataset_.index(), options).value();
    ASSERT_TRUE(alone->Start({}).ok());
    std::uint64_t bytes = 0;
    for (const RowList& rows : Drain(*alone)) {
      for (const Row& row : rows) bytes += row.second.size();
    }
    const LoaderStats here = alone->stats().value();
    // Out of cells all are.
    const std::uint64_t least = options.order.name == "epoch" ? bytes : 0;
    EXPECT_GE(here.engine.lanes[0].copied_bytes, least);
    EXPECT_LE(here.engine.lanes[0].copied_bytes, bytes);
    EXPECT_EQ(here.message_bytes, 0U);
    Serve();
    auto loader = Open(0, options);
    ASSERT_TRUE(loader->Start({}).ok());
    Drain(*loader);
    const LoaderStats there = loader->stats().value();
    EXPECT_GE(there.engine.lanes[0].copied_bytes, least);
    EXPECT_LE(there.engine.lanes[0].copied_bytes, bytes);
    EXPECT_GT(there.message_bytes, kSamples * kEpochs * sizeof(SampleId));
    EXPECT_LT(there.message_bytes, bytes / 10);
    loader.reset();
    WaitForEnd();
  }
}

TEST_F(NodeServerTest, OneThatLeavesInTheMiddleHoldsUpNobody) {
  constexpr std::uint32_t kRanks = 4;
  LoaderOptions options = OptionsOf(kRanks);
  options.prefetch = 2;  // Less than is left: one that only stopped would hold them up.
  for (const std::uint64_t left_at : {0U, 1U, 5U}) {
    Serve();
    OnEachRank(kRanks, [&](std::uint32_t rank) {
      const auto loader = Open(rank, options);
      EXPECT_TRUE(loader->Start({}).ok());
      if (rank != 1) {
        EXPECT_EQ(Drain(*loader), Alone(rank, options)) << left_at;
        return;
      }
      for (std::uint64_t step = 0; step < left_at; ++step) EXPECT_NE(TakeOne(*loader), nullptr);
    });
    WaitForEnd();
  }
}

// Batches ahead of a rank are counted, and here its memory has room for more.
TEST_F(NodeServerTest, OneThatStopsTakingHoldsUpTheOthersWhenItsShareIsFull) {
  LoaderOptions options = OptionsOf(2);
  options.prefetch = 4;
  Serve();
  auto one = Open(0, options);
  auto other = Open(1, options);
  ASSERT_TRUE(one->Start({}).ok());
  ASSERT_TRUE(other->Start({}).ok());
  std::vector<std::shared_ptr<Batch>> held;
  std::vector<RowList> got_other;
  for (int step = 0; step < 2; ++step) held.push_back(TakeOne(*other));
  std::vector<RowList> got;
  // Until the engine has nothing left that it may do.
  for (;;) {
    const Result<TakenBatch> next = one->Next(0);
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    if (next.value().batch != nullptr) {
      got.push_back(RowsOf(*one, *next.value().batch));
      continue;
    }
    const EngineStats engine = one->stats().value().engine;
    if (engine.lanes[1].ready == 4 && engine.lanes[0].ready == 0 && engine.steps_in_work == 0)
      break;
    std::this_thread::yield();
  }
  EXPECT_EQ(got.size(), 2U + 4U);
  EXPECT_EQ(one->Next(0).value().batch, nullptr);
  for (const auto& batch : held) got_other.push_back(RowsOf(*other, *batch));
  OnEachRank(2, [&](std::uint32_t rank) {
    std::vector<RowList>& rows = rank == 0 ? got : got_other;
    for (RowList& each : Drain(rank == 0 ? *one : *other)) rows.push_back(std::move(each));
  });
  EXPECT_EQ(got, Alone(0, options));
  EXPECT_EQ(got_other, Alone(1, options));
  EXPECT_GT(one->stats().value().engine.lanes[1].held_up_ns, 0);
  one.reset();
  other.reset();
  WaitForEnd();
}

TEST_F(NodeServerTest, OneThatOnlyHoldsWhatItTakesGetsAllOfIt) {
  LoaderOptions options = OptionsOf(2);
  options.memory_bytes = 300 * kKiB;
  Serve();
  std::vector<std::shared_ptr<Batch>> held;
  std::vector<BatchField> schema;
  OnEachRank(2, [&](std::uint32_t rank) {
    const auto loader = Open(rank, options);
    EXPECT_TRUE(loader->Start({}).ok());
    if (rank == 0) {
      EXPECT_EQ(Drain(*loader), Alone(0, options));
      return;
    }
    while (std::shared_ptr<Batch> batch = TakeOne(*loader)) held.push_back(std::move(batch));
    schema = loader->facts().schema;
  });
  const std::vector<RowList> expected = Alone(1, options);
  ASSERT_EQ(held.size(), expected.size());
  // Its loader is gone, the node lives on for what is held.
  const auto check = [&] {
    for (std::size_t i = 0; i < held.size(); ++i) {
      for (std::size_t slot = 0; slot < held[i]->samples.size(); ++slot) {
        const std::span<std::byte> row = held[i]->row(schema, 0, slot);
        const std::string& bytes = expected[i][slot].second;
        ASSERT_EQ(std::memcmp(row.data(), bytes.data(), row.size()), 0);
      }
    }
  };
  check();
  WaitForEnd();
  check();
  held.clear();
}

TEST_F(NodeServerTest, JobsOfAServiceRunSideBySideAndLeaveTheirTiersToTheNext) {
  const auto with_tier = [](std::uint32_t ranks, std::uint64_t seed) {
    LoaderOptions options = OptionsOf(ranks);
    options.job.seed = seed;
    options.tiers.tiers = {{.capacity_bytes = kMiB}};
    return options;
  };
  Serve({.service = true, .memory_bytes = 256 * kMiB});
  OnEachRank(4, [&](std::uint32_t thread) {
    const std::uint32_t job = thread / 2;
    const std::uint32_t rank = thread % 2;
    const LoaderOptions options = with_tier(2, /*seed=*/job);
    const auto loader = Open(rank, options, "job " + std::to_string(job));
    EXPECT_TRUE(loader->Start({}).ok());
    EXPECT_EQ(Drain(*loader), Alone(rank, options)) << job;
  });
  const LoaderOptions options = with_tier(2, /*seed=*/9);
  OnEachRank(2, [&](std::uint32_t rank) {
    const auto loader = Open(rank, options, "next");
    EXPECT_TRUE(loader->Start({}).ok());
    EXPECT_EQ(Drain(*loader), Alone(rank, options));
    EXPECT_EQ(loader->stats().value().engine.tiers.storage_uses, 0U);
  });
}

TEST_F(NodeServerTest, AListOfMoreSamplesThanAMessageHoldsIsRead) {
  Serve();
  const auto loader = Open(0, OptionsOf(1));
  ListOrderOptions list;
  for (std::uint64_t i = 0; i < 9'000'000; ++i) {
    list.ids.push_back(SampleId{i % kSamples});
    if (i % 5 == 4) list.batch_ends.push_back(i + 1);
  }
  ASSERT_TRUE(loader->StartList(std::move(list)).ok());
  for (const std::uint64_t first : {0U, 5U}) {
    const std::shared_ptr<Batch> batch = TakeOne(*loader);
    ASSERT_NE(batch, nullptr);
    const RowList rows = RowsOf(*loader, *batch);
    ASSERT_EQ(rows.size(), 5U);
    for (std::uint64_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].first, first + i);
      EXPECT_EQ(rows[i].second, dataset_.Row(first + i));
    }
  }
}

TEST_F(NodeServerTest, AnAnswerTooLargeForAMessageIsAnErrorOfTheCallAlone) {
  Serve();
  const auto loader = Open(0, OptionsOf(1));
  ASSERT_TRUE(loader->Start({}).ok());
  const Status refused = loader->ExplainRows(std::vector<SampleId>(1'000'000)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("must be at most 64.0 MiB"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("; ask for less at a time"));
  EXPECT_EQ(loader->ExplainRows(std::vector<SampleId>(3)).value().size(), 2U * 3U);
  EXPECT_EQ(Drain(*loader), Alone(0, OptionsOf(1)));
}

TEST_F(NodeServerTest, WhatIsKeptForOthersGivesWayToWhatJobsNeedAndToNothingElse) {
  const auto with_tier = [](std::uint64_t bytes) {
    LoaderOptions options = OptionsOf(1);
    options.memory_bytes = bytes + 2 * kMiB;
    options.tiers.tiers = {{.capacity_bytes = bytes}};
    return options;
  };
  // Samples that come from storage in two epochs: of each one, unless they were kept.
  const auto read = [&](std::uint64_t bytes) {
    const auto loader = Open(0, with_tier(bytes));
    EXPECT_TRUE(loader->Start({}).ok());
    EXPECT_EQ(Drain(*loader), Alone(0, with_tier(bytes)));
    return loader->stats().value().engine.tiers.storage_uses;
  };
  Serve({.service = true, .memory_bytes = 32 * kMiB});
  EXPECT_EQ(read(8 * kMiB), kSamples);
  {
    const auto other = Open(0, with_tier(12 * kMiB), "other");
    EXPECT_EQ(TryOpen(0, with_tier(28 * kMiB), "too large").status().code(),
              StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(read(8 * kMiB), 0U);
  Open(0, with_tier(20 * kMiB), "reads nothing").reset();
  EXPECT_EQ(read(6 * kMiB), kSamples);
  EXPECT_EQ(read(8 * kMiB), 0U);
  // What fits into the rest stays.
  const auto large = Open(0, with_tier(20 * kMiB), "large");
  EXPECT_EQ(read(8 * kMiB), 0U);
  EXPECT_EQ(read(6 * kMiB), kSamples);
}

TEST_F(NodeServerTest, AnOpeningWithOtherOptionsIsRefusedAndTheFirstRankIsTold) {
  Serve();
  auto first = Open(0, OptionsOf(2));
  LoaderOptions other = OptionsOf(2);
  other.job.seed = 4;
  const Status refused = TryOpen(1, other).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("seed is 3 on rank 0 and 4 on rank 1"));
  EXPECT_TRUE(first->Start({}).ok());
  const Status told = first->Next(-1).status();
  EXPECT_EQ(told.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(told.message(), refused.message());
  first.reset();
  WaitForEnd();
}

TEST_F(NodeServerTest, RanksOfAJobThatTheOthersFailedToOpenAndLeftAreToldWhy) {
  Serve();
  const std::string refused = FailToOpen(OptionsOf(4));
  EXPECT_THAT(refused, HasSubstr("seed is 3 on rank 0 and 4 on rank 1"));
  for (const std::uint32_t rank : {3U, 2U}) {
    EXPECT_EQ(TryOpen(rank, OptionsOf(4)).status().message(), refused);
  }
  WaitForEnd();  // Nobody is awaited any more.
}

TEST_F(NodeServerTest, AJobThatCouldNotBeOpenedLeavesItsNameAndItsMemory) {
  Serve({.service = true, .memory_bytes = 100 * kMiB, .await_ns = 0});
  LoaderOptions options = OptionsOf(4);
  options.memory_bytes = 16 * kMiB;
  options.tiers.tiers = {{.capacity_bytes = 12 * kMiB}};  // of each rank: not of eight
  EXPECT_NE(FailToOpen(options), "");
  const auto another = Open(0, options, "another job");
  options = OptionsOf(4);
  OnEachRank(4, [&](std::uint32_t rank) {
    const auto loader = Open(rank, options);
    EXPECT_TRUE(loader->Start({}).ok());
    EXPECT_EQ(Drain(*loader), Alone(rank, options));
  });
}

TEST_F(NodeServerTest, ARankThatComesBackAloneIsToldAndTheOthersGoOn) {
  const LoaderOptions options = OptionsOf(2);
  Serve();
  const auto stays = Open(0, options);
  auto goes = Open(1, options);
  ASSERT_TRUE(stays->Start({}).ok());
  ASSERT_TRUE(goes->Start({}).ok());
  std::vector<RowList> got;
  for (int step = 0; step < 3; ++step) got.push_back(RowsOf(*stays, *TakeOne(*stays)));
  goes.reset();
  const auto again = Open(1, options);
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_TRUE(again->Start({}).ok());
    const Status told = again->Next(-1).status();
    EXPECT_EQ(told.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(told.message()),
                HasSubstr("rank 1 joins job 'job' again and asks for epoch 0 step 0, but rank 0 "
                          "is already at epoch 0 step "));
  }
  for (RowList& rows : Drain(*stays)) got.push_back(std::move(rows));
  EXPECT_EQ(got, Alone(0, options));
  // Once nobody is in a run any more, one begins.
  ASSERT_TRUE(stays->Start({}).ok());
  EXPECT_EQ(stays->stats().value().awaited, std::vector<std::uint32_t>{1});  // It was heard.
  ASSERT_TRUE(again->Start({}).ok());
  OnEachRank(2, [&](std::uint32_t rank) {
    EXPECT_EQ(Drain(rank == 0 ? *stays : *again), Alone(rank, options));
  });
}

TEST_F(NodeServerTest, OneThatGoesBackWhileTheOthersGoOnIsToldWhenTheyPassItsEpoch) {
  LoaderOptions options = OptionsOf(2);
  options.job.epochs = 1000;
  Serve();
  const auto goes_on = Open(0, options);
  const auto goes_back = Open(1, options);
  ASSERT_TRUE(goes_on->Start({}).ok());
  ASSERT_TRUE(goes_back->Start({}).ok());
  EXPECT_NE(TakeOne(*goes_back), nullptr);
  ASSERT_TRUE(goes_back->Start({}).ok());
  const auto [told, taken] = TakeUntilTold(*goes_on, options);
  EXPECT_GT(taken, kSteps);
  for (const Status& each : {told, goes_back->Next(-1).status()}) {
    EXPECT_EQ(each.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(each.message()),
                HasSubstr("rank 1 left its loop at epoch 0 step 1 and waits to start epoch 0 step "
                          "0, but rank 0 did not leave there"));
  }
}

// Its workers took batches that its loop never asked for.
TEST_F(NodeServerTest, OneWhoseWorkersAreAheadOfItsLoopMayYetLeaveWhereTheOthersDid) {
  LoaderOptions options = OptionsOf(2);
  options.job.epochs = 1000;
  options.batches_behind = 4;
  Serve();
  const auto ahead = Open(0, options);
  const auto leaves = Open(1, options);
  ASSERT_TRUE(ahead->Start({}).ok());
  ASSERT_TRUE(leaves->Start({}).ok());
  EXPECT_NE(TakeOne(*leaves), nullptr);
  ASSERT_TRUE(leaves->Start({.epoch = 1}).ok());
  EXPECT_EQ(leaves->stats().value().awaited, std::vector<std::uint32_t>{0});  // It was heard.
  for (std::uint64_t i = 0; i < kSteps + options.batches_behind; ++i) {
    ASSERT_NE(TakeOne(*ahead), nullptr) << i;
  }
  ASSERT_TRUE(ahead->stats().ok());  // The node knows what was taken.
  ASSERT_TRUE(ahead->Start({.epoch = 1}).ok());
  for (RemoteLoader* const each : {ahead.get(), leaves.get()}) {
    const auto batch = TakeOne(*each);
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->epoch, 1U);
    EXPECT_EQ(batch->step, 0U);
  }
}

TEST_F(NodeServerTest, OneWhoseLoopIsPastWhereAnotherWaitsIsToldThoughItsWorkersAreAhead) {
  LoaderOptions options = OptionsOf(2);
  options.job.epochs = 1000;
  options.batches_behind = 4;
  Serve();
  const auto goes_on = Open(0, options);
  const auto leaves = Open(1, options);
  ASSERT_TRUE(goes_on->Start({}).ok());
  ASSERT_TRUE(leaves->Start({}).ok());
  EXPECT_NE(TakeOne(*leaves), nullptr);
  ASSERT_TRUE(leaves->Start({.epoch = 1}).ok());
  const Status told = TakeUntilTold(*goes_on, options).first;
  EXPECT_THAT(std::string(told.message()), HasSubstr("rank 0 did not leave there"));
}

// Its memory is the others'.
TEST_F(NodeServerTest, BatchesOfALaneThatNobodyHasAreNotKept) {
  LaneSink sink(/*receivers=*/{}, /*schema=*/{});
  const auto batch = std::make_shared<Batch>();
  sink.OnBatch(batch);
  EXPECT_EQ(batch.use_count(), 1);
}

// A virtual time that only the test moves.
class SetClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t NowNanos() const override { return now_ns_; }
  void Advance(std::int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<std::int64_t> now_ns_ = 0;
};

constexpr std::int64_t kSecond = 1'000'000'000;

TEST_F(NodeServerTest, RanksThatNeverComeEndTheWaitOfAllThatAreThereAndAreNamed) {
  Serve();
  const auto clock = std::make_shared<SetClock>();
  auto waiting = Open(0, OptionsOf(4), "job", clock);
  auto other = Open(2, OptionsOf(4));
  ASSERT_TRUE(waiting->Start({}).ok());
  ASSERT_TRUE(other->Start({}).ok());
  EXPECT_EQ(waiting->Next(0).value().batch, nullptr);  // From here on it waits.
  clock->Advance(599 * kSecond);
  EXPECT_EQ(waiting->Next(0).value().batch, nullptr);
  EXPECT_EQ(waiting->stats().value().awaited, (std::vector<std::uint32_t>{1, 3}));
  clock->Advance(2 * kSecond);
  for (RemoteLoader* const loader : {waiting.get(), other.get()}) {
    const Status told = loader->Next(-1).status();
    EXPECT_EQ(told.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(told.message(),
              "starting epoch 0 step 0 of job 'job': rank 0 waited 601 s for local rank 1, 3 of 4, "
              "which made no loader: make the same loaders on every rank of the node, in the same "
              "order, or raise Node.start_timeout");
  }
  EXPECT_EQ(waiting->stats().value().awaited, std::vector<std::uint32_t>());
  waiting.reset();
  other.reset();
  WaitForEnd();
}

TEST_F(NodeServerTest, ARankThatIsThereMayTakeItsTimeAndStatsNameIt) {
  Serve();
  const auto clock = std::make_shared<SetClock>();
  auto waiting = Open(0, OptionsOf(2), "job", clock);
  auto late = Open(1, OptionsOf(2), "job", clock);
  for (const std::uint64_t epoch : {0U, 1U}) {
    ASSERT_TRUE(waiting->Start({.epoch = epoch}).ok());
    EXPECT_EQ(waiting->Next(0).value().batch, nullptr);
    clock->Advance(10'000 * kSecond);
    EXPECT_EQ(waiting->Next(0).value().batch, nullptr);
    EXPECT_EQ(waiting->stats().value().awaited, (std::vector<std::uint32_t>{1}));
    ASSERT_TRUE(late->Start({.epoch = epoch}).ok());
    EXPECT_NE(TakeOne(*waiting), nullptr);
    EXPECT_NE(TakeOne(*late), nullptr);
    EXPECT_EQ(waiting->stats().value().awaited, std::vector<std::uint32_t>());
  }
  waiting.reset();
  late.reset();
  WaitForEnd();
}

}  // namespace
}  // namespace headrace
