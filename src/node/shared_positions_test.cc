// Ranks of a node that get the same batches, as those of a tensor group.

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "node/client/remote_loader.h"
#include "node/testing/node_server_fixture.h"

namespace headrace {
namespace {

class SharedPositionsTest : public NodeServerTest {
 protected:
  // One of `seats` ranks of the node, which share the positions of the options evenly: neighbours
  // have the same.
  std::unique_ptr<RemoteLoader> OpenSeat(std::uint32_t seat, std::uint32_t seats,
                                         LoaderOptions options) const {
    const std::uint32_t lane = seat * options.job.world_size / seats;
    auto opened = TryOpenSeat(seat, seats, lane, std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return std::move(opened).value();
  }
  Result<std::unique_ptr<RemoteLoader>> TryOpenSeat(std::uint32_t seat, std::uint32_t seats,
                                                    std::uint32_t lane,
                                                    LoaderOptions options) const {
    const std::uint32_t lanes = options.job.world_size;
    options.job.rank = lane;
    const NodeAddress address{
        .socket = socket_,
        .job = "job",
        .local_rank = seat,
        .local_ranks = seats,
        .lanes = NodeAddress::Lanes{.process = seat, .lane = lane, .lanes = lanes},
        .index_path = dataset_.index_path(),
        .fingerprint = dataset_.index()->fingerprint()};
    return RemoteLoader::Open(address, std::move(options), [] { return true; });
  }
};

TEST_F(SharedPositionsTest, RanksOfAPositionGetTheSameBatchesWhichAreReadOnce) {
  for (const char* const order : {"exact", "batch", "epoch"}) {
    LoaderOptions options = OptionsOf(2, order);
    options.tiers.tiers = {{.capacity_bytes = kMiB}};
    std::vector<std::uint64_t> from_storage;
    for (const std::uint32_t seats : {2U, 6U}) {
      Serve();
      std::vector<std::unique_ptr<RemoteLoader>> loaders(seats);
      OnEachRank(seats, [&](std::uint32_t seat) {
        loaders[seat] = OpenSeat(seat, seats, options);
        EXPECT_TRUE(loaders[seat]->Start({}).ok());
        EXPECT_EQ(Drain(*loaders[seat]), Alone(seat * 2 / seats, options)) << order << " " << seat;
      });
      from_storage.push_back(loaders[0]->stats().value().engine.tiers.storage_uses);
      loaders.clear();
      WaitForEnd();
    }
    EXPECT_GT(from_storage[0], 0U) << order;
    EXPECT_EQ(from_storage[0], from_storage[1]) << order;
  }
}

TEST_F(SharedPositionsTest, WhatARankOfAPositionChangesInItsBatchTheOthersDoNotSee) {
  const LoaderOptions options = OptionsOf(1);
  Serve();
  const auto one = OpenSeat(0, 2, options);
  const auto other = OpenSeat(1, 2, options);
  ASSERT_TRUE(one->Start({}).ok());
  ASSERT_TRUE(other->Start({}).ok());
  const std::shared_ptr<Batch> changed = TakeOne(*one);
  for (std::size_t slot = 0; slot < changed->samples.size(); ++slot) {
    const std::span<std::byte> row = changed->row(one->facts().schema, 0, slot);
    std::fill(row.begin(), row.end(), std::byte{0});
  }
  EXPECT_EQ(Drain(*other), Alone(0, options));
}

TEST_F(SharedPositionsTest, ARankOfAPositionThatLeavesDoesNotEndTheRunOfTheOthers) {
  LoaderOptions options = OptionsOf(2);
  options.prefetch = 2;  // Less than is left.
  for (const std::uint64_t left_at : {0U, 1U, 5U}) {
    Serve();
    OnEachRank(4, [&](std::uint32_t seat) {
      const auto loader = OpenSeat(seat, 4, options);
      EXPECT_TRUE(loader->Start({}).ok());
      if (seat != 1) {
        EXPECT_EQ(Drain(*loader), Alone(seat / 2, options)) << left_at << " " << seat;
        return;
      }
      for (std::uint64_t step = 0; step < left_at; ++step) EXPECT_NE(TakeOne(*loader), nullptr);
    });
    WaitForEnd();
  }
}

// Until then the engine makes no more batches of the position: they would have no bound.
TEST_F(SharedPositionsTest, APositionHasTakenABatchWhenAllOfItsRanksHave) {
  LoaderOptions options = OptionsOf(1);
  options.prefetch = 3;
  Serve();
  auto one = OpenSeat(0, 2, options);
  auto other = OpenSeat(1, 2, options);
  ASSERT_TRUE(one->Start({}).ok());
  ASSERT_TRUE(other->Start({}).ok());
  std::vector<RowList> got;
  for (int step = 0; step < 3; ++step) got.push_back(RowsOf(*one, *TakeOne(*one)));
  // The engine has nothing left that it may do.
  while (one->stats().value().engine.steps_in_work != 0) std::this_thread::yield();
  EXPECT_EQ(one->Next(0).value().batch, nullptr);
  EXPECT_EQ(one->stats().value().engine.lanes.size(), 1U);
  EXPECT_EQ(one->stats().value().engine.lanes[0].ready, 3U);
  std::vector<RowList> got_other;
  OnEachRank(2, [&](std::uint32_t seat) {
    for (RowList& each : Drain(seat == 0 ? *one : *other)) {
      (seat == 0 ? got : got_other).push_back(std::move(each));
    }
  });
  EXPECT_EQ(got, Alone(0, options));
  EXPECT_EQ(got_other, Alone(0, options));
}

TEST_F(SharedPositionsTest, MoreRanksThanAPositionMayHaveAreRefused) {
  Serve();
  const auto first = OpenSeat(0, 4, OptionsOf(2));
  const auto second = OpenSeat(1, 4, OptionsOf(2));
  EXPECT_EQ(std::string(TryOpenSeat(2, 4, /*lane=*/0, OptionsOf(2)).status().message()),
            "process " + std::to_string(::getpid()) +
                " joins job 'job' at position 0 of 2 on this node: 2 ranks are there already, as "
                "many as each position may have; give each process its own LOCAL_RANK");
}

TEST_F(SharedPositionsTest, NodesOfALoaderThatWasOpenedWithoutAnyAreRefused) {
  Serve();
  const auto loader = OpenSeat(0, 1, OptionsOf(1));
  EXPECT_EQ(loader->ConnectNodes({}).ToString(),
            "FailedPrecondition: connecting nodes: the loader was opened without any; open it with "
            "nodes");
}

}  // namespace
}  // namespace headrace
