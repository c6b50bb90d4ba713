// Parcels between real nodes: who asks for them, for which run, and who still takes any.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "peer/grpc/peer_node.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"
#include "peer/grpc/testing/peer_harness.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Gives each part so many bytes, once its test says so.
class HeldParts final : public HeldSamples {
 public:
  struct Asked {
    NodeNumber node = 0;
    ParcelPart part;

    friend bool operator==(const Asked&, const Asked&) = default;
  };

  void Take(SampleId /*sample*/, std::uint64_t /*deadline*/, TakenEntry done) override {
    done(Status(StatusCode::kNotFound, "no tiers"));
  }
  void TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done) override {
    const std::lock_guard lock(mutex_);
    asked_.push_back({to, part});
    OwnedBytes owned{.memory = *memory->Acquire(kBytes), .size = kBytes};
    std::ranges::fill(owned.bytes(), static_cast<std::byte>(part.parcel));
    done(std::move(owned));
  }
  [[nodiscard]] std::vector<Asked> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  static constexpr std::size_t kBytes = 700'000;  // more than a message
  const std::shared_ptr<BufferPool> memory = BufferPool::Make(64 << 20);

 private:
  std::mutex mutex_;
  std::vector<Asked> asked_;
};

// Asks `node` for a part and waits for it.
Result<std::string> TakePart(PeerNode& from, NodeNumber node, const ParcelPart& part) {
  const auto pool = BufferPool::Make(4 << 20);
  Fetch fetch;
  fetch.from = PartAtNode{.part = part, .bytes = HeldParts::kBytes, .node = node};
  fetch.buffer = *pool->Acquire(HeldParts::kBytes);
  std::promise<Result<std::string>> ended;
  const FetchSource::Done done = [&ended](Fetch&, Result<std::span<std::byte>> data) {
    if (!data.ok()) return ended.set_value(data.status());
    ended.set_value(
        std::string(reinterpret_cast<const char*>(data.value().data()), data.value().size()));
  };
  Fetch* const pointer = &fetch;
  from.source().Read({&pointer, 1}, {}, done);
  return ended.get_future().get();
}

TEST(PeerParcelsTest, APartIsAskedForByTheNodeOfTheStreamAndForItsOwnRun) {
  HeldParts held;
  Nodes nodes(3);
  nodes[2].Give(&held);
  const ParcelPart first{.round = 7, .parcel = 5, .first = 2, .count = 3, .ids = 11};
  const ParcelPart second{.round = 8, .parcel = 0, .first = 0, .count = 1, .ids = 12};
  EXPECT_EQ(TakePart(nodes[0], 2, first).value(), std::string(HeldParts::kBytes, '\5'));
  EXPECT_EQ(TakePart(nodes[1], 2, second).value(), std::string(HeldParts::kBytes, '\0'));
  nodes[2].Give(nullptr);
  EXPECT_THAT(held.asked(), ElementsAre(HeldParts::Asked{0, first}, HeldParts::Asked{1, second}));
}

TEST(PeerParcelsTest, MemoryOfWhatWasGivenComesBack) {
  HeldParts held;
  Nodes nodes(2);
  nodes[1].Give(&held);
  EXPECT_TRUE(TakePart(nodes[0], 1, {.parcel = 1, .count = 1}).ok());
  nodes[1].Give(nullptr);
  while (held.memory->stats().used_bytes > 0) std::this_thread::yield();
}

// Keeps the parts that are asked for until there are `count` of them; gives the first of them as
// sent ahead, before the others.
class AheadFirst final : public HeldSamples {
 public:
  void Take(SampleId /*sample*/, std::uint64_t /*deadline*/, TakenEntry done) override {
    done(Status(StatusCode::kNotFound, "no tiers"));
  }
  void TakeParcel(NodeNumber /*to*/, const ParcelPart& /*part*/, TakenParcel done) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(done));
    if (waiting_.size() < 2) return;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      waiting_[i](OwnedBytes{.memory = *memory_->Acquire(HeldParts::kBytes),
                             .gone = nullptr,
                             .size = HeldParts::kBytes,
                             .ahead = i == 0});
    }
  }

 private:
  const std::shared_ptr<BufferPool> memory_ = BufferPool::Make(8 << 20);
  std::mutex mutex_;
  std::vector<TakenParcel> waiting_;
};

TEST(PeerParcelsTest, WhatIsSentAheadLetsOthersPassEvenIfSomeOfItHasBeenWritten) {
  AheadFirst held;
  // After the first message the second waits for the rate, and by then all parts are there.
  Nodes nodes(2, PeerGroup{.answer_ns = 60 * kNsPerSecond, .rate_bytes_per_s = 2'000'000});
  nodes[1].Give(&held);
  const auto pool = BufferPool::Make(8 << 20);
  std::vector<Fetch> fetches(2);
  std::vector<Fetch*> pointers;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    fetches[i].from =
        PartAtNode{.part = {.parcel = i, .count = 1}, .bytes = HeldParts::kBytes, .node = 1};
    fetches[i].buffer = *pool->Acquire(HeldParts::kBytes);
    pointers.push_back(&fetches[i]);
  }
  std::mutex mutex;
  std::vector<std::uint64_t> came;
  std::promise<void> all;
  const FetchSource::Done done = [&](Fetch& fetch, const Result<std::span<std::byte>>& data) {
    EXPECT_TRUE(data.ok()) << data.status().ToString();
    const std::lock_guard lock(mutex);
    came.push_back(fetch.Reads<PartAtNode>().part.parcel);
    if (came.size() == 2) all.set_value();
  };
  nodes[0].source().Read(pointers, {}, done);
  all.get_future().get();
  EXPECT_THAT(came, ElementsAre(1, 0));
  nodes[1].Give(nullptr);
}

// A stream on which somebody asks for a parcel, who says to be `says`.
grpc::StatusCode AskAs(const PeerNode& node, const std::optional<std::string>& says) {
  const auto stub = peers::v1::Peers::NewStub(
      grpc::CreateChannel(node.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata(kPeerTokenKey, "secret");
  if (says.has_value()) context.AddMetadata(kPeerNodeKey, *says);
  const auto stream = stub->Samples(&context);
  peers::v1::SampleRequests requests;
  peers::v1::SampleRequest& request = *requests.add_requests();
  request.set_number(1);
  request.set_bytes(HeldParts::kBytes);
  request.mutable_parcel()->set_round(1);
  request.mutable_parcel()->set_count(1);
  stream->Write(requests);
  stream->WritesDone();
  peers::v1::SampleAnswers answers;
  while (stream->Read(&answers)) {
  }
  return stream->Finish().error_code();
}

TEST(PeerParcelsTest, WhoIsNoOtherNodeOfTheJobGetsNoParcel) {
  HeldParts held;
  Nodes nodes(2);
  nodes[1].Give(&held);
  for (const auto& says : {std::optional<std::string>(), std::optional<std::string>("1"),
                           std::optional<std::string>("2"), std::optional<std::string>("0x"),
                           std::optional<std::string>("-1")}) {
    EXPECT_EQ(AskAs(nodes[1], says), grpc::StatusCode::INVALID_ARGUMENT) << says.value_or("none");
  }
  EXPECT_THAT(held.asked(), IsEmpty());
  EXPECT_EQ(nodes[1].traffic().bad_messages, 5U);
  EXPECT_EQ(AskAs(nodes[1], "0"), grpc::StatusCode::OK);
  EXPECT_EQ(held.asked().size(), 1U);
  nodes[1].Give(nullptr);
}

void Agree(Nodes& nodes, NodeNumber count, std::uint64_t round) {
  std::vector<std::future<Status>> all;
  for (NodeNumber node = 0; node < count; ++node) {
    all.push_back(std::async(std::launch::async, [&nodes, node, round] {
      return nodes[node].Agree(round, "the same", Always).status();
    }));
  }
  for (auto& each : all) EXPECT_TRUE(each.get().ok());
}

TEST(PeerParcelsTest, ANodeTakesParcelsOfTheRunThatItIsInUntilItSaysSo) {
  Nodes nodes(3);
  Agree(nodes, 3, 1);
  EXPECT_TRUE(nodes[0].AnyTakes());
  nodes[1].StopTaking(1);
  EXPECT_TRUE(nodes[0].AnyTakes()) << "node 2 does";
  nodes[2].StopTaking(1);
  while (nodes[0].AnyTakes()) std::this_thread::yield();
  Agree(nodes, 3, 2);
  EXPECT_TRUE(nodes[0].AnyTakes());
  nodes[1].StopTaking(1);  // Of the run before: too late.
  nodes[2].StopTaking(2);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(nodes[0].AnyTakes()) << "node 1 does";
  nodes[1].StopTaking(2);
  while (nodes[0].AnyTakes()) std::this_thread::yield();
}

TEST(PeerParcelsTest, ANodeWhoseProcessHasEndedTakesNothing) {
  std::vector<std::unique_ptr<PeerNode>> nodes;
  std::vector<std::string> addresses;
  for (int node = 0; node < 2; ++node) {
    nodes.push_back(PeerNode::Listen({}).value());
    addresses.push_back(nodes.back()->address());
  }
  for (NodeNumber node = 0; node < 2; ++node) {
    ASSERT_TRUE(nodes[node]->Connect({.node = node, .addresses = addresses, .token = "a"}).ok());
  }
  auto other = std::async(std::launch::async,
                          [&] { return nodes[1]->Agree(1, "the same", Always).status(); });
  EXPECT_TRUE(nodes[0]->Agree(1, "the same", Always).ok());
  EXPECT_TRUE(other.get().ok());
  EXPECT_TRUE(nodes[0]->AnyTakes());
  nodes[1].reset();
  while (nodes[0]->AnyTakes()) std::this_thread::yield();
}

// A later launch may listen where a node of this one did, in a run of the same number.
TEST(PeerParcelsTest, ANodeOfAnotherLaunchTakesNothingOfThisOne) {
  std::vector<std::unique_ptr<PeerNode>> nodes;
  std::vector<std::string> addresses;
  for (int node = 0; node < 3; ++node) {
    nodes.push_back(PeerNode::Listen({}).value());
    addresses.push_back(nodes.back()->address());
  }
  const std::vector<std::string> first = {addresses[0], addresses[1]};
  const std::vector<std::string> later = {addresses[2], addresses[1]};
  ASSERT_TRUE(nodes[0]->Connect({.node = 0, .addresses = first, .token = "a"}).ok());
  ASSERT_TRUE(nodes[1]->Connect({.node = 1, .addresses = later, .token = "a"}).ok());
  ASSERT_TRUE(nodes[2]->Connect({.node = 0, .addresses = later, .token = "a"}).ok());
  EXPECT_EQ(nodes[0]->Agree(1, "the same", [] { return false; }).status().code(),
            StatusCode::kCancelled);
  auto other = std::async(std::launch::async,
                          [&] { return nodes[1]->Agree(1, "the same", Always).status(); });
  EXPECT_TRUE(nodes[2]->Agree(1, "the same", Always).ok());
  EXPECT_TRUE(other.get().ok());
  while (nodes[0]->AnyTakes()) std::this_thread::yield();
  EXPECT_TRUE(nodes[2]->AnyTakes());
}

}  // namespace
}  // namespace headrace
