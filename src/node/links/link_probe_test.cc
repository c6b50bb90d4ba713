#include "node/links/link_probe.h"

#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/links/link_commands.h"
#include "peer/grpc/testing/peer_harness.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr LinkTime kShort{.duration_ns = 1'000'000, .duration_max_ns = 10'000'000'000};

std::unique_ptr<LinkProbe> Listening() { return LinkProbe::Make({}).value(); }

class LinkProbeTest : public testing::Test {
 protected:
  // All nodes of one job, on the loopback device.
  void Connect(std::size_t count, std::int64_t answer_ns = 20'000'000'000) {
    PeerGroup group{.token = "secret", .answer_ns = answer_ns, .begin_ns = 20'000'000'000};
    for (std::size_t i = 0; i < count; ++i) nodes_.push_back(Listening());
    for (const auto& node : nodes_) group.addresses.push_back(node->address());
    for (const auto& node : nodes_) {
      ASSERT_TRUE(node->Connect(group).ok());
      ++group.node;
    }
  }

  std::vector<std::unique_ptr<LinkProbe>> nodes_;
};

TEST_F(LinkProbeTest, CountsTheSamplesOfAllOtherNodes) {
  Connect(3);
  for (const std::uint64_t bytes : LinkProbe::kSampleBytes) {
    for (const std::uint32_t in_flight : {1U, 16U}) {
      const Result<LinkSlice> slice =
          nodes_[1]->Measure({.bytes = bytes, .in_flight = in_flight}, kShort);
      ASSERT_TRUE(slice.ok()) << slice.status().ToString();
      EXPECT_GT(slice.value().operations, 0U);
      EXPECT_EQ(slice.value().bytes, slice.value().operations * bytes);
      EXPECT_GT(slice.value().rate, 0);
      EXPECT_GE(slice.value().cpu_seconds, 0);
    }
  }
}

TEST_F(LinkProbeTest, MeetsWhenAllNodesDo) {
  Connect(2);
  for (int round = 0; round < 2; ++round) {
    Status other;
    std::jthread thread([&] { other = nodes_[1]->Meet([] { return true; }); });
    EXPECT_TRUE(nodes_[0]->Meet([] { return true; }).ok());
    thread.join();
    EXPECT_TRUE(other.ok()) << other.ToString();
  }
  EXPECT_EQ(nodes_[0]->Meet([] { return false; }).code(), StatusCode::kCancelled);
}

TEST_F(LinkProbeTest, WhatCannotBeMeasuredIsNamed) {
  const auto alone = Listening();
  EXPECT_EQ(alone->Measure({.bytes = 4096}, kShort).status().code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE(alone->Connect({.addresses = {alone->address()}, .token = "t"}).ok());
  EXPECT_THAT(std::string(alone->Measure({.bytes = 4096}, kShort).status().message()),
              HasSubstr("the only node"));
  Connect(2);
  EXPECT_EQ(nodes_[0]->Measure({.bytes = 4097}, kShort).status().message(),
            "measuring a link: got samples of 4097 bytes, must be 4096, 102400 or 1048576");
  for (const std::uint32_t in_flight : {0U, 257U}) {
    EXPECT_THAT(
        std::string(
            nodes_[0]->Measure({.bytes = 4096, .in_flight = in_flight}, kShort).status().message()),
        HasSubstr("must be in [1, 256]"));
  }
}

TEST_F(LinkProbeTest, ANodeThatIsGoneEndsTheMeasurementWithItsNumber) {
  Connect(2, /*answer_ns=*/500'000'000);
  nodes_[1].reset();
  const Status status = nodes_[0]->Measure({.bytes = 4096, .in_flight = 16}, kShort).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("asking node 1 for a sample of 4096 bytes"));
}

TEST(LinkCommandsTest, AnswersEachCommandByALine) {
  const auto other = Listening();
  std::istringstream in("measure 4096 1 1 1\nconnect 0 1\nconnect 0 1000000000 1000000000 1\n" +
                        other->address() + "\nsecret\nmeasure 4096 1 1 1\ndance\n");
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_TRUE(ServeLinkCommands({}, in, say).ok());
  ASSERT_EQ(said.size(), 6U) << testing::PrintToString(said);
  EXPECT_THAT(said[0], StartsWith("address 127.0.0.1:"));
  EXPECT_EQ(said[1],
            "error 9 measuring a link: the other nodes are not known yet; connect them first");
  EXPECT_THAT(said[2], StartsWith("error 3 links: got the command 'connect 0 1'"));
  EXPECT_EQ(said[3], "ok");
  EXPECT_EQ(said[4], "error 3 measuring a link: this is the only node, and there must be another");
  EXPECT_THAT(said[5], StartsWith("error 3 links: got the command 'dance'"));
}

TEST(LinkSamplesTest, ASampleThatIsNotMeasuredIsRefused) {
  const auto probe = Listening();
  const auto node = PeerNode::Listen({}).value();
  PeerGroup group{.addresses = {probe->address(), node->address()}, .token = "secret"};
  ASSERT_TRUE(probe->Connect(group).ok());
  group.node = 1;
  ASSERT_TRUE(node->Connect(group).ok());
  EXPECT_THAT(ReadAll(*node, 0, {{7000, 4096}})[0].status().ToString(),
              HasSubstr("sample 7000: nodes that measure links have no such sample"));
}

}  // namespace
}  // namespace headrace
