// What nodes say to each other in a request, and in which order they are served.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "peer/grpc/peer_node.h"
#include "peer/grpc/testing/peer_harness.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

TEST(PeerRequestsTest, ARequestSaysWhenTheSampleIsNeeded) {
  TierSamples held({"first", "second"});
  Nodes nodes(2);
  nodes[1].Give(&held);
  ReadAll(nodes[0], 1, {{0, 5}, {1, 6}}, {}, std::nullopt, /*deadline=*/65536UL * 77);
  nodes[1].Give(nullptr);
  EXPECT_THAT(held.deadlines, ElementsAre(65536 * 77, 65536 * 77));
}

TEST(PeerRequestsTest, ASecondNodeHearsItToo) {
  TierSamples nothing({});
  TierSamples held({"first"});
  Nodes nodes(3);
  nodes[1].Give(&nothing);
  nodes[2].Give(&held);
  const auto got = ReadAll(nodes[0], 1, {{0, 5}}, {}, /*second=*/2, /*deadline=*/65536);
  nodes[1].Give(nullptr);
  nodes[2].Give(nullptr);
  ASSERT_TRUE(got.front().ok()) << got.front().status().message();
  EXPECT_EQ(got.front().value(), "first");
  EXPECT_THAT(held.deadlines, ElementsAre(65536));
}

TEST(PeerRequestsTest, SamplesThatAreReadTogetherAreOneRequest) {
  TierSamples held(std::vector<std::string>(200, "small"));
  Nodes nodes(2);
  nodes[1].Give(&held);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted;
  for (std::uint64_t i = 0; i < 200; ++i) wanted.emplace_back(i, 5);
  for (const auto& got : ReadAll(nodes[0], 1, wanted)) {
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got.value(), "small");
  }
  nodes[1].Give(nullptr);
  const NodeTraffic traffic = nodes[0].traffic();
  EXPECT_EQ(traffic.received_samples, 200U);
  EXPECT_EQ(traffic.requests, 1U);
  EXPECT_GE(traffic.answers, 1U);
  EXPECT_LE(traffic.answers, 200U);
  EXPECT_EQ(nodes[1].traffic().requests, 0U);
}

// Reads that end when they end, and who gave them.
class Reads {
 public:
  static constexpr std::uint64_t kBytes = 600'000;  // more than a message

  ~Reads() {
    stop_.request_stop();
    Await(fetches_.size());
  }
  void Begin(PeerNode& from, NodeNumber node, std::size_t count) {
    std::vector<Fetch*> begun;
    for (std::size_t i = 0; i < count; ++i) {
      Fetch& fetch = fetches_.emplace_back();
      fetch.from = SampleAtNode{.nodes = {.first = node}, .bytes = kBytes};
      fetch.buffer = *pool_->Acquire(kBytes);
      begun.push_back(&fetch);
    }
    from.source().Read(begun, stop_.get_token(), done_);
  }
  void Await(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= count; });
  }

 private:
  const std::shared_ptr<BufferPool> pool_ = BufferPool::Make(64 << 20);
  std::stop_source stop_;
  std::deque<Fetch> fetches_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
  const FetchSource::Done done_ = [this](Fetch&, const Result<std::span<std::byte>>&) {
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  };
};

// A rate of which a tenth of a second, which is saved, is less than a sample.
TEST(PeerRequestsTest, UnderARateNoNodeIsAskedForAllBeforeTheNext) {
  const std::vector<std::string> sample = {std::string(Reads::kBytes, 'x')};
  TierSamples first(sample);
  TierSamples second(sample);
  Nodes nodes(3, PeerGroup{.answer_ns = 60 * kNsPerSecond, .rate_bytes_per_s = 4'000'000});
  nodes[1].Give(&first);
  nodes[2].Give(&second);
  {
    Reads reads;
    reads.Begin(nodes[0], 1, 10);
    reads.Begin(nodes[0], 2, 10);
    reads.Await(10);  // If the first gave all of its, the second would have given none.
    EXPECT_GE(nodes[1].traffic().given_samples, 1U);
    EXPECT_GE(nodes[2].traffic().given_samples, 1U);
  }
  nodes[1].Give(nullptr);
  nodes[2].Give(nullptr);
}

}  // namespace
}  // namespace headrace
