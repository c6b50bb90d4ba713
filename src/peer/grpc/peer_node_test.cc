#include "peer/grpc/peer_node.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory/buffer_pool.h"
#include "base/units.h"
#include "fetch/source_conformance.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"
#include "peer/grpc/testing/peer_harness.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Calls a node without a PeerNode of the caller's.
std::unique_ptr<peers::v1::Peers::Stub> StubOf(const PeerNode& node) {
  return peers::v1::Peers::NewStub(
      grpc::CreateChannel(node.address(), grpc::InsecureChannelCredentials()));
}

class PeerUnderTest final : public SourceUnderTest {
 public:
  explicit PeerUnderTest(const std::vector<std::string>& samples)
      : samples_(samples), held_(samples), nodes_(2) {
    nodes_[1].Give(&held_);
  }
  ~PeerUnderTest() override { nodes_[1].Give(nullptr); }
  FetchSource& source() override { return nodes_[0].source(); }
  void Aim(Fetch& fetch, std::uint64_t number) override {
    fetch.from = SampleAtNode{
        .nodes = {.first = 1}, .sample = SampleId{number}, .bytes = samples_[number].size()};
  }
  void Damage(std::uint64_t number) override { held_.tier->Erase(SampleId{number}); }
  void Pump() override { std::this_thread::yield(); }

 private:
  const std::vector<std::string> samples_;
  TierSamples held_;
  Nodes nodes_;
};

INSTANTIATE_TEST_SUITE_P(
    Peer, SourceConformanceTest,
    testing::Values(SourceCase{
        "peer", [](const auto& samples) { return std::make_unique<PeerUnderTest>(samples); }}),
    [](const auto& each) { return each.param.name; });

std::string Payload(std::uint64_t number, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(number * 31 + i * 7 + i / 251);
  return bytes;
}

TEST(PeerNodeTest, SamplesOfAllSizesArriveWhole) {
  std::vector<std::string> samples;
  for (const std::size_t size : {1U, 4096U, 100'000U, 262'144U, 262'145U, 5'000'000U}) {
    for (int i = 0; i < 3; ++i) samples.push_back(Payload(samples.size(), size));
  }
  TierSamples held(samples);
  Nodes nodes(2);
  nodes[1].Give(&held);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted;
  for (std::uint64_t i = 0; i < samples.size(); ++i) wanted.emplace_back(i, samples[i].size());
  for (int round = 0; round < 3; ++round) {
    const auto got = ReadAll(nodes[0], 1, wanted);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      ASSERT_TRUE(got[i].ok()) << got[i].status().message();
      EXPECT_TRUE(got[i].value() == samples[i]) << "sample " << i;
    }
  }
  EXPECT_EQ(nodes[0].traffic().received_samples, 3 * samples.size());
  EXPECT_EQ(nodes[1].traffic().given_samples, 3 * samples.size());
  EXPECT_EQ(nodes[1].traffic().bad_messages, 0U);
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, MoreThanAWindowIsAskedForPartByPart) {
  const std::vector<std::string> samples = {Payload(7, 1'000'000)};
  TierSamples held(samples);
  Nodes nodes(2);
  nodes[1].Give(&held);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted(80, {0, samples[0].size()});
  for (const auto& got : ReadAll(nodes[0], 1, wanted)) {
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(got.value() == samples[0]);
  }
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, WhatANodeLacksIsNotFoundAndNoFailure) {
  TierSamples held({"here"});
  Nodes nodes(2);
  nodes[1].Give(&held);
  const auto got = ReadAll(nodes[0], 1, {{0, 4}, {9, 4}, {0, 5}});
  EXPECT_TRUE(got[0].ok());
  EXPECT_EQ(got[1].status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(got[1].status().message()), HasSubstr("sample 9 of node 1 (127.0.0.1:"));
  EXPECT_THAT(std::string(got[2].status().message()), HasSubstr("different datasets"));
  EXPECT_EQ(nodes[0].traffic().not_held, 2U);
  EXPECT_EQ(nodes[0].traffic().failed, 0U);
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, ANodeThatIsSilentIsLateAndThenNotAskedForAWhile) {
  TierSamples held({"here"});
  Nodes nodes(2, /*answer_ns=*/30 * kNsPerMs);
  held.silent = true;
  nodes[1].Give(&held);
  for (int i = 0; i < 3; ++i) {
    const auto got = ReadAll(nodes[0], 1, {{0, 4}});
    EXPECT_EQ(got[0].status().code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(ReadAll(nodes[0], 1, {{0, 4}})[0].status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(nodes[0].traffic().down, ElementsAre(1U));
  held.Release();
  nodes[1].Give(nullptr);
}

// So long that only an answer ends a test, and a second node that is asked soon.
constexpr PeerGroup SoonASecond() {
  return {.answer_ns = 60 * kNsPerSecond, .hedge_ns = 10 * kNsPerMs};
}

TEST(PeerNodeTest, ASecondNodeGivesWhatTheFirstIsSlowToGive) {
  TierSamples slow({"here"});
  TierSamples held({"here"});
  Nodes nodes(3, SoonASecond());
  slow.silent = true;
  nodes[1].Give(&slow);
  nodes[2].Give(&held);
  const auto got = ReadAll(nodes[0], 1, {{0, 4}}, {}, /*second=*/2);
  ASSERT_TRUE(got[0].ok()) << got[0].status().message();
  EXPECT_EQ(got[0].value(), "here");
  EXPECT_EQ(nodes[0].traffic().asked_second, 1U);
  EXPECT_EQ(nodes[0].traffic().second_gave, 1U);
  EXPECT_EQ(nodes[0].traffic().received_samples, 1U);
  EXPECT_EQ(nodes[2].traffic().given_samples, 1U);
  // The first may answer later: nobody waits for it any more.
  slow.Release();
  EXPECT_TRUE(ReadAll(nodes[0], 1, {{0, 4}})[0].ok());
  EXPECT_EQ(nodes[0].traffic().bad_messages, 0U);
  nodes[1].Give(nullptr);
  nodes[2].Give(nullptr);
}

TEST(PeerNodeTest, ASecondNodeIsAskedAtOnceIfTheFirstDoesNotHaveTheSample) {
  TierSamples lacks({"here"});
  TierSamples held({"here", "there"});
  Nodes nodes(3);  // A second that is asked because of the time is asked after a second.
  nodes[1].Give(&lacks);
  nodes[2].Give(&held);
  const auto got = ReadAll(nodes[0], 1, {{0, 4}, {1, 5}, {2, 5}}, {}, /*second=*/2);
  EXPECT_EQ(got[0].value(), "here");
  ASSERT_TRUE(got[1].ok()) << got[1].status().message();
  EXPECT_EQ(got[1].value(), "there");
  EXPECT_EQ(got[2].status().code(), StatusCode::kNotFound) << "neither has it";
  EXPECT_EQ(nodes[0].traffic().asked_second, 2U);
  EXPECT_EQ(nodes[0].traffic().second_gave, 1U);
  nodes[1].Give(nullptr);
  nodes[2].Give(nullptr);
}

TEST(PeerNodeTest, IfBothNodesAreSilentTheReadEndsOnce) {
  TierSamples first({"here"});
  TierSamples second({"here"});
  Nodes nodes(3, SoonASecond());
  first.silent = true;
  second.silent = true;
  nodes[1].Give(&first);
  nodes[2].Give(&second);
  auto reading = std::async(std::launch::async, [&] {
    return ReadAll(nodes[0], 1, {{0, 4}}, {}, /*second=*/2);
  });
  for (TierSamples* const each : {&first, &second}) {
    while (true) {
      const std::lock_guard lock(each->mutex);
      if (!each->unanswered.empty()) break;
    }
  }
  first.Release();
  second.Release();
  EXPECT_EQ(reading.get()[0].status().code(), StatusCode::kNotFound);
  nodes[1].Give(nullptr);
  nodes[2].Give(nullptr);
}

TEST(PeerNodeTest, ASecondNodeThatIsNoneOfTheOthersIsNotAsked) {
  TierSamples held({"here"});
  Nodes nodes(2, SoonASecond());
  nodes[1].Give(&held);
  for (const NodeNumber second : {0U, 1U, 2U, 77U, kNoNode}) {
    EXPECT_EQ(ReadAll(nodes[0], 1, {{9, 4}}, {}, second)[0].status().code(), StatusCode::kNotFound);
  }
  EXPECT_EQ(nodes[0].traffic().asked_second, 0U);
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, NoMoreThanTheRateIsAskedForOrGiven) {
  const std::vector<std::string> samples = {Payload(1, 100'000)};
  TierSamples held(samples);
  Nodes nodes(2, {.answer_ns = 60 * kNsPerSecond, .rate_bytes_per_s = 10'000'000});
  nodes[1].Give(&held);
  const MonotonicClock clock;
  const std::int64_t begin_ns = clock.NowNanos();
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted(40, {0, samples[0].size()});
  for (const auto& got : ReadAll(nodes[0], 1, wanted)) ASSERT_TRUE(got.ok());
  // 4 MB, of which 1 MB was saved and one sample may overdraw.
  EXPECT_GE(clock.NowNanos() - begin_ns, 280 * kNsPerMs);
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, ANodeThatReadsNothingCannotKeepWhatIsGiven) {
  const std::vector<std::string> samples = {Payload(1, 1'000'000)};
  TierSamples held(samples);
  Nodes nodes(2);
  nodes[1].Give(&held);
  grpc::ClientContext context;
  context.AddMetadata(kPeerTokenKey, "secret");
  const auto stub = StubOf(nodes[1]);
  const auto stream = stub->Samples(&context);
  peers::v1::SampleRequests requests;
  for (std::uint64_t number = 1; number <= 60; ++number) {
    peers::v1::SampleRequest& request = *requests.add_requests();
    request.set_number(number);
    request.set_bytes(samples[0].size());
  }
  stream->Write(requests);
  while (nodes[1].traffic().given_samples == 0) std::this_thread::yield();
  nodes[1].Give(nullptr);  // Returns although most of them wait to be sent.
  EXPECT_LT(nodes[1].traffic().given_samples, 60U);
  context.TryCancel();
  static_cast<void>(stream->Finish());
}

TEST(PeerNodeTest, AReadOfARunThatEndsIsCancelled) {
  TierSamples held({"here"});
  Nodes nodes(2);
  held.silent = true;
  nodes[1].Give(&held);
  std::stop_source stop;
  std::jthread ends([&] {
    while (true) {
      {
        const std::lock_guard lock(held.mutex);
        if (!held.unanswered.empty()) break;
      }
      std::this_thread::yield();
    }
    stop.request_stop();
  });
  EXPECT_EQ(ReadAll(nodes[0], 1, {{0, 4}}, stop.get_token())[0].status().code(),
            StatusCode::kCancelled);
  held.Release();
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, ANodeThatGoesFailsItsReadsAndComesBackAtAnotherTime) {
  TierSamples held({"here"});
  Nodes nodes(2);
  held.silent = true;
  nodes[1].Give(&held);
  auto reading = std::async(std::launch::async, [&] { return ReadAll(nodes[0], 1, {{0, 4}}); });
  while (true) {
    const std::lock_guard lock(held.mutex);
    if (!held.unanswered.empty()) break;
  }
  held.Release();
  EXPECT_FALSE(reading.get()[0].ok());
  EXPECT_TRUE(ReadAll(nodes[0], 1, {{0, 4}})[0].ok());
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, AnUnknownNodeIsAnError) {
  Nodes nodes(2);
  EXPECT_EQ(ReadAll(nodes[0], 7, {{0, 4}})[0].status().code(), StatusCode::kUnavailable);
}

TEST(PeerNodeTest, AllNodesHearWhatEachSays) {
  Nodes nodes(3);
  std::vector<std::future<Result<std::vector<std::string>>>> said;
  for (NodeNumber node = 0; node < 3; ++node) {
    said.push_back(std::async(std::launch::async, [&nodes, node] {
      // More than one part of a message, and an empty one.
      return nodes[node].Agree(1, node == 2 ? "" : std::string(3'000'000, node == 0 ? 'a' : 'b'),
                               Always);
    }));
  }
  for (auto& each : said) {
    const auto all = each.get();
    ASSERT_TRUE(all.ok()) << all.status().message();
    EXPECT_TRUE(all.value() == (std::vector<std::string>{std::string(3'000'000, 'a'),
                                                         std::string(3'000'000, 'b'), ""}));
  }
}

TEST(PeerNodeTest, ANodeThatIsGoneIsNamedWhenARunBegins) {
  auto node = PeerNode::Listen({}).value();
  auto other = PeerNode::Listen({}).value();
  const std::string gone = other->address();
  ASSERT_TRUE(node->Connect({.node = 0,
                             .addresses = {node->address(), gone},
                             .token = "secret",
                             .begin_ns = 1'000'000})
                  .ok());
  other.reset();
  const Status told = node->Agree(1, "", Always).status();
  EXPECT_EQ(told.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(told.message()),
              testing::StartsWith("beginning run 1 with node 1 (" + gone + "): "));
  EXPECT_THAT(std::string(told.message()), testing::EndsWith("; see whether that node runs"));
}

void BeginRun(Nodes& nodes, NodeNumber count, std::uint64_t round) {
  std::vector<std::future<Result<std::vector<std::string>>>> said;
  for (NodeNumber node = 0; node < count; ++node) {
    said.push_back(std::async(std::launch::async, [&nodes, node, round] {
      return nodes[node].Agree(round, "", Always);
    }));
  }
  for (auto& each : said) ASSERT_TRUE(each.get().ok());
}

void AwaitCompared(const PeerNode& node, std::uint64_t steps) {
  while (node.traffic().compared_steps < steps) std::this_thread::yield();
}

TEST(PeerNodeTest, PlansAreComparedAndADifferenceIsFoundByEachNode) {
  Nodes nodes(3);
  const PlannedSteps early{.round = 1, .epoch = 0, .step = 0, .sums = {{1, 2, 3}, {4, 5, 6}}};
  BeginRun(nodes, 3, 1);
  for (NodeNumber node = 0; node < 3; ++node) nodes[node].Plan(early);
  for (NodeNumber node = 0; node < 3; ++node) {
    AwaitCompared(nodes[node], 4);
    EXPECT_FALSE(nodes[node].TakeDifference().has_value()) << node;
  }
  PlannedSteps later{.round = 1, .epoch = 0, .step = 2, .sums = {{7, 8, 9}, {7, 8, 9}}};
  nodes[0].Plan(later);
  nodes[1].Plan(later);
  later.sums[1] = {7, 0, 0};
  nodes[2].Plan(later);
  for (NodeNumber node = 0; node < 3; ++node) {
    AwaitCompared(nodes[node], 8);
    const std::optional<PlanDifference> found = nodes[node].TakeDifference();
    ASSERT_TRUE(found.has_value()) << node;
    EXPECT_TRUE(node == 2 || found->node == 2) << found->node;
    EXPECT_EQ(found->at, PlannedAt(0, 3));
    EXPECT_EQ(found->field, 1U);
    EXPECT_EQ(found->agreed, PlannedAt(0, 2));
    EXPECT_FALSE(nodes[node].TakeDifference().has_value());
    EXPECT_EQ(nodes[node].traffic().bad_messages, 0U);
  }
}

TEST(PeerNodeTest, ANodeThatIsGoneHoldsUpNobodyWhoTellsItsPlan) {
  auto node = PeerNode::Listen({}).value();
  auto other = PeerNode::Listen({}).value();
  const std::vector<std::string> addresses = {node->address(), other->address()};
  ASSERT_TRUE(node->Connect({.node = 0, .addresses = addresses, .token = "secret"}).ok());
  other.reset();
  for (std::uint64_t step = 0; step < 100; ++step) {
    node->Plan({.round = 1, .epoch = 0, .step = step, .sums = {{1, 2, 3}}});
  }
  EXPECT_EQ(node->traffic().compared_steps, 0U);
}

TEST(PeerNodeTest, PlansThatCannotBeComparedAreRefused) {
  Nodes nodes(2);
  const auto stub = StubOf(nodes[1]);
  const auto said = [&](const char* token, std::uint32_t node, std::uint64_t round, int sums) {
    grpc::ClientContext context;
    context.AddMetadata(kPeerTokenKey, token);
    peers::v1::Plan plan;
    plan.set_node(node);
    plan.set_round(round);
    for (int i = 0; i < sums; ++i) plan.add_sums(1);
    peers::v1::CompareReply reply;
    return stub->Compare(&context, plan, &reply).error_code();
  };
  EXPECT_EQ(said("secret", 0, 1, 3), grpc::StatusCode::OK);
  EXPECT_EQ(said("wrong", 0, 1, 3), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(said("secret", 1, 1, 3), grpc::StatusCode::INVALID_ARGUMENT) << "itself";
  EXPECT_EQ(said("secret", 2, 1, 3), grpc::StatusCode::INVALID_ARGUMENT) << "no node";
  EXPECT_EQ(said("secret", 0, 9, 3), grpc::StatusCode::INVALID_ARGUMENT) << "far away";
  EXPECT_EQ(said("secret", 0, 1, 4), grpc::StatusCode::INVALID_ARGUMENT) << "a part of a step";
  EXPECT_EQ(said("secret", 0, 1, 3 * (int{PlanLedger::kStepsKept} + 1)),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(nodes[1].traffic().bad_messages, 6U);
}

TEST(PeerNodeTest, ACallWithoutTheTokenGetsNothing) {
  TierSamples held({"here"});
  Nodes nodes(2);
  nodes[1].Give(&held);
  const auto stub = StubOf(nodes[1]);
  for (const char* token : {"", "wrong", "secre", "secret2"}) {
    grpc::ClientContext context;
    if (*token != '\0') context.AddMetadata(kPeerTokenKey, token);
    const auto stream = stub->Samples(&context);
    peers::v1::SampleRequests requests;
    requests.add_requests()->set_number(1);
    stream->Write(requests);
    peers::v1::SampleAnswers answers;
    EXPECT_FALSE(stream->Read(&answers));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  EXPECT_EQ(nodes[1].traffic().bad_messages, 4U);
  EXPECT_EQ(nodes[1].traffic().given_samples, 0U);
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, AFloodOfRequestsEndsTheStream) {
  TierSamples held({"here"});
  held.silent = true;
  Nodes nodes(2);
  nodes[1].Give(&held);
  grpc::ClientContext context;
  context.AddMetadata(kPeerTokenKey, "secret");
  const auto stub = StubOf(nodes[1]);
  const auto stream = stub->Samples(&context);
  peers::v1::SampleRequests requests;
  for (std::uint64_t i = 0; i < 100; ++i) {
    peers::v1::SampleRequest& request = *requests.add_requests();
    request.set_number(i + 1);
    request.set_bytes(kPeerWindowBytes);
  }
  stream->Write(requests);
  peers::v1::SampleAnswers answers;
  EXPECT_FALSE(stream->Read(&answers));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(nodes[1].traffic().bad_messages, 1U);
  held.Release();
  nodes[1].Give(nullptr);
}

TEST(PeerNodeTest, RequestsForNoBytesEndTheStream) {
  TierSamples held({"here"});
  Nodes nodes(2);
  nodes[1].Give(&held);
  grpc::ClientContext context;
  context.AddMetadata(kPeerTokenKey, "secret");
  const auto stub = StubOf(nodes[1]);
  const auto stream = stub->Samples(&context);
  peers::v1::SampleRequests requests;
  requests.add_requests()->set_number(1);
  stream->Write(requests);
  peers::v1::SampleAnswers answers;
  EXPECT_FALSE(stream->Read(&answers));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(nodes[1].traffic().bad_messages, 1U);
  nodes[1].Give(nullptr);
}

// A node that answers as a test says.
class Liar final : public peers::v1::Peers::Service {
 public:
  using Answer = std::function<void(const peers::v1::SampleRequest&, peers::v1::SampleAnswers&)>;
  explicit Liar(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Liar() override { server_->Shutdown(std::chrono::system_clock::now()); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status Samples(grpc::ServerContext* /*context*/,
                       grpc::ServerReaderWriter<peers::v1::SampleAnswers,
                                                peers::v1::SampleRequests>* stream) override {
    peers::v1::SampleRequests requests;
    while (stream->Read(&requests)) {
      for (const auto& request : requests.requests()) {
        peers::v1::SampleAnswers answers;
        answer_(request, answers);
        stream->Write(answers);
      }
    }
    return grpc::Status::OK;
  }

 private:
  const Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(PeerNodeTest, ANodeThatLiesGivesErrorsAndNeverWrongBytes) {
  using peers::v1::SampleAnswer;
  using Lie = std::function<void(const std::string& truth, SampleAnswer& answer)>;
  const std::vector<std::pair<const char*, Lie>> lies = {
      {"another number", [](const std::string&, SampleAnswer& a) { a.set_number(a.number() + 9); }},
      {"too long", [](const std::string&, SampleAnswer& a) { a.mutable_part()->append("more"); }},
      {"too short, and no more",
       [](const std::string&, SampleAnswer& a) { a.mutable_part()->resize(3); }},
      {"nothing", [](const std::string&, SampleAnswer& a) { a.clear_part(); }},
      {"at another place", [](const std::string&, SampleAnswer& a) { a.set_offset(4); }},
      {"far away", [](const std::string&, SampleAnswer& a) { a.set_offset(~0ULL); }},
      {"other bytes", [](const std::string&, SampleAnswer& a) { (*a.mutable_part())[1] ^= 1; }},
      {"another checksum", [](const std::string&, SampleAnswer& a) { a.set_checksum(1); }},
      {"an error that is none", [](const std::string&, SampleAnswer& a) { a.set_code(77); }},
  };
  const std::string truth = "twelve bytes";
  for (const auto& named : lies) {
    SCOPED_TRACE(named.first);
    const Lie& lie = named.second;
    Liar liar([&](const peers::v1::SampleRequest& request, peers::v1::SampleAnswers& answers) {
      SampleAnswer& answer = *answers.add_answers();
      answer.set_number(request.number());
      answer.set_part(truth);
      answer.set_checksum(NextPeerChecksum(0, std::as_bytes(std::span(truth))));
      if (request.sample() == 0) lie(truth, answer);
    });
    auto node = PeerNode::Listen({}).value();
    ASSERT_TRUE(node->Connect({.node = 0,
                               .addresses = {node->address(), liar.address()},
                               .token = "secret",
                               .answer_ns = 200 * kNsPerMs})
                    .ok());
    EXPECT_FALSE(ReadAll(*node, 1, {{0, truth.size()}})[0].ok());
    // It is asked again, and believed where it does not lie.
    const auto again = ReadAll(*node, 1, {{1, truth.size()}});
    if (again[0].ok()) {
      EXPECT_EQ(again[0].value(), truth);
    }
  }
}

TEST(PeerNodeTest, ListensBeyondLoopbackOnlyWhenItMay) {
  EXPECT_EQ(PeerNode::Listen({.address = "0.0.0.0"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(PeerNode::Listen({.address = "0.0.0.0", .open_network = true}).ok());
  EXPECT_EQ(PeerNode::Listen({.certificate = "/nowhere"}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      PeerNode::Listen({.authority = "/nowhere", .certificate = "/nowhere", .key = "/nowhere"})
          .status()
          .code(),
      StatusCode::kFailedPrecondition);
  auto first = PeerNode::Listen({}).value();
  EXPECT_EQ(PeerNode::Listen({.address = first->address()}).status().code(),
            StatusCode::kUnavailable);
}

TEST(PeerNodeTest, RefusesGroupsThatItIsNotIn) {
  auto node = PeerNode::Listen({}).value();
  EXPECT_FALSE(node->Connect({.node = 2, .addresses = {"a:1", "b:2"}, .token = "x"}).ok());
  EXPECT_FALSE(node->Connect({.node = 0, .addresses = {"a:1", ""}, .token = "x"}).ok());
  EXPECT_FALSE(node->Connect({.node = 0, .addresses = {"a:1", "b:2"}, .token = ""}).ok());
  EXPECT_EQ(node->Agree(1, "", Always).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(node->Connect({.node = 0, .addresses = {"a:1", "b:2"}, .token = "x"}).ok());
  EXPECT_EQ(node->Connect({.node = 0, .addresses = {"a:1"}, .token = "x"}).code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace
