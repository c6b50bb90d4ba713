#include "node/client/remote_loader.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ipc/connection.h"
#include "ipc/testing/raw_socket.h"
#include "node/client/answer_patience.h"
#include "node/protocol/messages.h"

namespace headrace {
namespace {

using testing::HasSubstr;

// A virtual time that only the test moves.
class SetClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t NowNanos() const override { return now_ns_; }
  void Advance(std::int64_t ns) { now_ns_ += ns; }

 private:
  std::int64_t now_ns_ = 0;
};

// A rank at a node process that says what the test has it say. Both are one thread: the node's part
// is played while the rank looks whether it is to keep waiting.
class RemoteLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RawListen(listener_.get(), socket_, 1)); }

  // `answers`: the node opens the job.
  Result<std::unique_ptr<RemoteLoader>> Open(bool answers) {
    while_waiting_ = [this, answers] {
      if (!answers) return true;
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      node_ = IpcConnection::FromFd(std::move(fd)).value();
      EXPECT_EQ(Heard().size(), 2U);  // ClientHello, OpenSession
      Say(SessionOpened{});
      while_waiting_ = [] { return true; };
      return true;
    };
    const NodeAddress address{.socket = socket_, .job = "job"};
    const auto keep_waiting = [this] {
      clock_->Advance(look_ns_);
      return while_waiting_();
    };
    return RemoteLoader::Open(address, {}, keep_waiting, clock_);
  }

  void Say(const NodeMessage& message) { ASSERT_TRUE(node_->Send(Encode(message)).ok()); }

  // What the rank said since the test looked last.
  std::vector<ClientMessage> Heard() {
    std::vector<ClientMessage> all;
    while (auto message = node_->Receive(0).value()) {
      all.push_back(DecodeClientMessage(message->bytes).value());
    }
    return all;
  }

  static std::string Node() {
    return "the node process (pid " + std::to_string(::getpid()) + ") of job 'job'";
  }
  static std::string Unanswered(const std::string& seconds) {
    return ": no answer in " + seconds + " s: see whether it is stopped (ps -o stat= -p " +
           std::to_string(::getpid()) + "); it may be planning for another rank: try again";
  }

  const std::string socket_ = UniqueSocketName();
  const UniqueFd listener_ = RawSocket();
  const std::shared_ptr<SetClock> clock_ = std::make_shared<SetClock>();
  std::unique_ptr<IpcConnection> node_;
  std::function<bool()> while_waiting_;
  std::int64_t look_ns_ = 20 * kNsPerSecond;  // The time from one look to the next.
};

TEST_F(RemoteLoaderTest, AnOpeningThatIsNotAnsweredEndsWhenItsTimeIsOver) {
  const Status told = Open(/*answers=*/false).status();
  EXPECT_EQ(told.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(told.message(), "opening a loader by " + Node() + Unanswered("600"));
}

TEST_F(RemoteLoaderTest, ACallThatIsNotAnsweredEndsAndItsAnswerIsNotTakenForAnother) {
  const auto loader = Open(/*answers=*/true).value();
  const Status told = loader->stats().status();
  EXPECT_EQ(told.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(told.message(), "stats() by " + Node() + Unanswered("60"));
  const Status planned = loader->Explain({}).status();
  EXPECT_EQ(planned.message(), "explain() by " + Node() + Unanswered("600"));
  while_waiting_ = [&] {
    const std::vector<ClientMessage> heard = Heard();
    EXPECT_EQ(heard.size(), 3U);
    Say(StatsReply{.call = std::get<AskStats>(heard[0]).call, .stats = {.threads = 1}});
    Say(RowsReply{.call = std::get<AskRows>(heard[1]).call});
    Say(StatsReply{.call = std::get<AskStats>(heard[2]).call, .stats = {.threads = 2}});
    while_waiting_ = [] { return true; };
    return true;
  };
  EXPECT_EQ(loader->stats().value().threads, 2);
  node_.reset();
}

TEST_F(RemoteLoaderTest, ACallEndsWhenItIsNotToWait) {
  const auto loader = Open(/*answers=*/true).value();
  while_waiting_ = [] { return false; };
  const Status told = loader->step_times().status();
  EXPECT_EQ(told.code(), StatusCode::kCancelled);
  EXPECT_EQ(told.message(), "trace() by " + Node() + ": interrupted");
  node_.reset();
}

// Else they fill the connection, and the next message waits where nobody can end it.
TEST_F(RemoteLoaderTest, OnlySoManyCallsAreSaidThatAreNotAnswered) {
  const auto loader = Open(/*answers=*/true).value();
  while_waiting_ = [] { return false; };
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(loader->stats().status().code(), StatusCode::kCancelled);
  }
  const std::vector<ClientMessage> heard = Heard();
  EXPECT_EQ(heard.size(), 16U);
  for (const ClientMessage& each : heard) Say(StatsReply{.call = std::get<AskStats>(each).call});
  while_waiting_ = [&] {
    for (const ClientMessage& each : Heard()) {
      Say(StatsReply{.call = std::get<AskStats>(each).call, .stats = {.threads = 3}});
    }
    return true;
  };
  EXPECT_EQ(loader->stats().value().threads, 3);
  node_.reset();
}

TEST_F(RemoteLoaderTest, TheLastFiguresOfALoaderThatIsClosedAreTheNodesThoughItAnswersLate) {
  const auto loader = Open(/*answers=*/true).value();
  look_ns_ = kNsPerSecond / 20;
  AnswerPatience patience;
  patience.BeginClose();
  int looks = 0;
  const auto look = [&] {
    ++looks;
    return patience.GoesOn([] { return true; });
  };
  while_waiting_ = [&] {
    if (looks + 1 == AnswerPatience::kLastLooks) {
      const std::uint64_t call = std::get<AskStats>(Heard().front()).call;
      Say(StatsReply{.call = call, .stats = {.threads = 7}});
    }
    return look();
  };
  const auto ask = [&] { return loader->stats(); };
  const Result<LoaderStats> last = AnswerPatience::AskLast(ask);
  ASSERT_TRUE(last.ok()) << last.status().ToString();
  EXPECT_EQ(last.value().threads, 7);
  EXPECT_EQ(looks, AnswerPatience::kLastLooks);
  while_waiting_ = look;
  looks = 0;
  EXPECT_EQ(AnswerPatience::AskLast(ask).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(looks, AnswerPatience::kLastLooks + 1);
  looks = 0;
  EXPECT_EQ(loader->stats().status().code(), StatusCode::kCancelled);  // Not the last one.
  EXPECT_EQ(looks, 1);
  node_.reset();
}

TEST_F(RemoteLoaderTest, WhatNoNodeSaysIsRefusedAndACloseIsExplained) {
  const auto told = [&](const std::function<void()>& node) {
    const auto loader = Open(/*answers=*/true).value();
    while_waiting_ = [&] {
      node();
      while_waiting_ = [] { return true; };
      return true;
    };
    const std::string said = loader->stats().status().ToString();
    node_.reset();
    return said;
  };
  EXPECT_THAT(told([&] { Say(SessionOpened{}); }), HasSubstr("the job was opened twice"));
  EXPECT_THAT(told([&] { Say(Refused{}); }), HasSubstr("a refusal without a reason"));
  EXPECT_THAT(told([&] { node_.reset(); }),
              HasSubstr(Node() + " closed its connection to this rank, because the rank left its "
                                 "messages unread, as a suspended process does; "));
}

}  // namespace
}  // namespace headrace
