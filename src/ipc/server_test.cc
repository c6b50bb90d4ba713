#include "ipc/server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ipc/connection.h"
#include "ipc/testing/raw_socket.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::span<const std::byte> BytesOfText(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string Text(const IpcMessage& message) {
  std::string text;
  for (const std::byte byte : message.bytes) text.push_back(std::to_integer<char>(byte));
  return text;
}

// Echoes messages, and records events for threads that wait for them.
class Recorder final : public IpcHandler {
 public:
  void OnConnected(const std::shared_ptr<IpcPeer>& peer) override {
    MutexLock lock(mutex_);
    peers_.push_back(peer);
    changed_.NotifyAll();
  }
  Status OnMessage(const std::shared_ptr<IpcPeer>& peer, IpcMessage message) override {
    {
      MutexLock lock(mutex_);
      ++messages_;
      EXPECT_FALSE(closed_.contains(peer->id()));
    }
    if (Text(message) == "refuse me") return {StatusCode::kInvalidArgument, "as you wish"};
    std::vector<int> fds;
    for (const UniqueFd& fd : message.fds) fds.push_back(fd.get());
    (void)peer->Send(message.bytes, fds);  // OnClosed() reports a peer that has gone.
    return {};
  }
  void OnClosed(const std::shared_ptr<IpcPeer>& peer, const Status& why) override {
    MutexLock lock(mutex_);
    EXPECT_TRUE(closed_.emplace(peer->id(), why).second);
    changed_.NotifyAll();
  }

  std::shared_ptr<IpcPeer> WaitForPeer(std::size_t index) {
    MutexLock lock(mutex_);
    while (peers_.size() <= index) changed_.Wait(mutex_);
    return peers_[index];
  }
  Status WaitForEnd(std::uint64_t id) {
    MutexLock lock(mutex_);
    while (!closed_.contains(id)) changed_.Wait(mutex_);
    return closed_.at(id);
  }
  std::size_t messages() {
    MutexLock lock(mutex_);
    return messages_;
  }
  std::size_t ended() {
    MutexLock lock(mutex_);
    return closed_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<IpcPeer>> peers_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Status> closed_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t messages_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

class ServerTest : public testing::Test {
 protected:
  void TearDown() override { Stop(); }
  void Start(IpcServerOptions options = {}) {
    if (options.name.empty()) options.name = name_;
    server_ = IpcServer::Make(std::move(options), handler_).value();
    thread_ = std::jthread([this](const std::stop_token& stop) { server_->Run(stop); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
  }
  [[nodiscard]] std::unique_ptr<IpcConnection> Connect() const {
    return IpcConnection::Connect(name_).value();
  }
  static std::string Ask(IpcConnection& connection, std::string_view text) {
    EXPECT_TRUE(connection.Send(BytesOfText(text)).ok());
    const auto answer = connection.Receive();
    return answer.ok() ? Text(*answer.value()) : answer.status().ToString();
  }

  const std::string name_ = UniqueSocketName();
  Recorder handler_;
  std::unique_ptr<IpcServer> server_;
  std::jthread thread_;
};

TEST_F(ServerTest, AnswersItsPeersEachByItself) {
  Start();
  const auto one = Connect();
  const auto other = Connect();
  EXPECT_EQ(Ask(*one, "a"), "a");
  EXPECT_EQ(Ask(*other, "b"), "b");
  EXPECT_EQ(Ask(*one, std::string(100'000, 'x')), std::string(100'000, 'x'));
  EXPECT_NE(handler_.WaitForPeer(0)->id(), handler_.WaitForPeer(1)->id());
  EXPECT_EQ(handler_.WaitForPeer(0)->pid(), ::getpid());
  EXPECT_EQ(server_->stats().accepted, 2);
}

TEST_F(ServerTest, WhoConnectedBeforeItRunsIsServed) {
  server_ = IpcServer::Make({.name = name_}, handler_).value();
  const auto early = Connect();
  ASSERT_TRUE(early->Send(BytesOfText("early")).ok());
  thread_ = std::jthread([this](const std::stop_token& stop) { server_->Run(stop); });
  EXPECT_EQ(Text(*early->Receive().value()), "early");
}

TEST_F(ServerTest, ANameThatIsServedCanNotBeServedTwice) {
  Start();
  const Status status = IpcServer::Make({.name = name_}, handler_).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("serving socket @" + name_ + ": user " + std::to_string(geteuid()) +
                         " (process " + std::to_string(getpid()) + ", since 2"));
  EXPECT_THAT(status.message(), HasSubstr(") serves it; end that, or choose another name"));
  EXPECT_EQ(IpcServer::Make({.name = std::string(108, 'x')}, handler_).status().code(),
            StatusCode::kInvalidArgument);
  Stop();
  EXPECT_TRUE(IpcServer::Make({.name = name_}, handler_).ok());
}

TEST_F(ServerTest, APeerThatGoesIsToldOfOnce) {
  Start();
  auto connection = Connect();
  const auto peer = handler_.WaitForPeer(0);
  connection.reset();
  const Status why = handler_.WaitForEnd(peer->id());
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  EXPECT_THAT(why.message(), StartsWith("peer 2 (process " + std::to_string(::getpid()) + "): "));
  EXPECT_EQ(peer->Send(BytesOfText("?")).code(), StatusCode::kUnavailable);
  peer->Close(Status(StatusCode::kInternal, "too late"));
  Stop();
  EXPECT_EQ(handler_.ended(), 1);
}

TEST_F(ServerTest, AnErrorOfTheHandlerAndCloseDropAPeerWhichGetsWhatWasSentBefore) {
  Start();
  const auto one = Connect();
  EXPECT_THAT(Ask(*one, "refuse me"), StartsWith("Unavailable"));
  EXPECT_EQ(handler_.WaitForEnd(handler_.WaitForPeer(0)->id()).message(), "as you wish");
  const auto other = Connect();
  const auto peer = handler_.WaitForPeer(1);
  EXPECT_TRUE(peer->Send(BytesOfText("good bye")).ok());
  peer->Close(Status(StatusCode::kFailedPrecondition, "enough"));
  EXPECT_EQ(handler_.WaitForEnd(peer->id()).message(), "enough");
  EXPECT_EQ(peer->Send(BytesOfText("?")).message(), "enough");
  EXPECT_EQ(Text(*other->Receive().value()), "good bye");
  EXPECT_EQ(other->Receive().status().code(), StatusCode::kUnavailable);
}

TEST_F(ServerTest, WhenItStopsEveryPeerEndsAndNoneCanBeAdded) {
  Start();
  const auto one = Connect();
  const auto peer = handler_.WaitForPeer(0);
  Stop();
  EXPECT_EQ(handler_.WaitForEnd(peer->id()).code(), StatusCode::kCancelled);
  EXPECT_EQ(one->Receive().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(IpcConnection::Connect(name_).status().code(), StatusCode::kUnavailable);
  auto ends = IpcConnection::MakePair().value();
  EXPECT_EQ(server_->Add(std::move(ends.first)).status().code(), StatusCode::kFailedPrecondition);
  server_.reset();
  EXPECT_EQ(peer->Send(BytesOfText("?")).code(), StatusCode::kCancelled);
}

TEST_F(ServerTest, AServerThatNeverRanEndsItsPeers) {
  server_ = IpcServer::Make({}, handler_).value();
  auto ends = IpcConnection::MakePair().value();
  const auto peer = server_->Add(std::move(ends.first)).value();
  server_.reset();
  EXPECT_EQ(handler_.WaitForEnd(peer->id()).code(), StatusCode::kCancelled);
}

TEST_F(ServerTest, AStopBeforeItRunsEndsItAtOnce) {
  server_ = IpcServer::Make({.name = name_}, handler_).value();
  std::stop_source stop;
  stop.request_stop();
  server_->Run(stop.get_token());
}

TEST_F(ServerTest, AChildsEndOfAPairIsAPeer) {
  Start();
  auto ends = IpcConnection::MakePair().value();
  const auto peer = server_->Add(std::move(ends.first)).value();
  EXPECT_EQ(Ask(*ends.second, "hello"), "hello");
  EXPECT_TRUE(peer->Send(BytesOfText("by itself")).ok());
  EXPECT_EQ(Text(*ends.second->Receive().value()), "by itself");
  ends.second.reset();
  EXPECT_EQ(handler_.WaitForEnd(peer->id()).code(), StatusCode::kUnavailable);
}

TEST_F(ServerTest, BeyondItsPeersItRefuses) {
  Start({.peers_max = 2});
  auto one = Connect();
  const auto two = Connect();
  EXPECT_EQ(Ask(*one, "1") + Ask(*two, "2"), "12");
  const auto three = Connect();
  EXPECT_EQ(three->Receive().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(server_->stats().refused_too_many, 1);
  auto ends = IpcConnection::MakePair().value();
  const Status added = server_->Add(std::move(ends.first)).status();
  EXPECT_EQ(added.message(), "adding a peer: there are 2, must be at most 2");
  one.reset();
  (void)handler_.WaitForEnd(handler_.WaitForPeer(0)->id());
  EXPECT_EQ(Ask(*Connect(), "4"), "4");
}

// Attacks that an abstract name does not prevent.
TEST_F(ServerTest, AnotherUserIsRefusedBeforeAByteOfItIsRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Start();
  const std::size_t before = OpenFds();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::setuid(kNobody) != 0) ::_exit(1);
    const UniqueFd socket = RawSocket();
    if (!RawConnect(socket.get(), name_)) ::_exit(2);
    (void)::send(socket.get(), "12345678", 8, MSG_NOSIGNAL);
    char byte = 0;
    ::_exit(::recv(socket.get(), &byte, 1, 0) <= 0 ? 0 : 3);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_EQ(WEXITSTATUS(how), 0);
  EXPECT_EQ(server_->stats().refused_other_user, 1);
  EXPECT_EQ(server_->stats().accepted, 0);
  EXPECT_EQ(handler_.messages(), 0);
  EXPECT_EQ(OpenFds(), before);
  EXPECT_EQ(Ask(*Connect(), "ours"), "ours");
}

TEST_F(ServerTest, APeerThatDoesNotReadIsDroppedByNameAndKeepsNobodyWaiting) {
  Start({.queue = {.bytes_max = 100'000}});
  const auto deaf = Connect();
  const auto peer = handler_.WaitForPeer(0);
  const auto other = Connect();
  Status status;
  std::size_t sent = 0;
  while ((status = peer->Send(std::vector<std::byte>(1000))).ok()) {
    ASSERT_LT(++sent, 10'000);
    if (sent % 50 == 0) {
      ASSERT_EQ(Ask(*other, "still here"), "still here");
    }
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("dropped, it does not read: 99 messages of 97.5 KiB"));
  EXPECT_EQ(handler_.WaitForEnd(peer->id()).message(), status.message());
  EXPECT_EQ(Ask(*other, "still here"), "still here");
  // The peer receives what is in its socket.
  std::size_t received = 0;
  while (deaf->Receive().ok()) ++received;
  EXPECT_EQ(received, sent - 99);
}

TEST_F(ServerTest, MessagesAndDescriptorsThatWaitAreBoundedToo) {
  Start({.queue = {.messages_max = 3, .fds_max = 10}});
  const auto deaf = Connect();
  const auto also_deaf = Connect();
  (void)handler_.WaitForPeer(1);
  const std::size_t before = OpenFds();
  for (const std::size_t fds : {std::size_t{0}, std::size_t{4}}) {
    const auto peer = handler_.WaitForPeer(fds == 0 ? 0 : 1);
    Status status;
    while (status.ok()) status = peer->Send(std::vector<std::byte>(1000), std::vector<int>(fds, 0));
    EXPECT_THAT(status.message(), HasSubstr(fds == 0 ? "3 messages of" : "2 messages of"));
    (void)handler_.WaitForEnd(peer->id());
  }
  EXPECT_EQ(OpenFds(), before - 2);  // No queued descriptor is left, and two sockets are closed.
}

// One message is queued whatever its size: otherwise a slow reader could never get a large one.
TEST_F(ServerTest, WhatWaitedComesWholeAndInOrderOnceThePeerReads) {
  Start({.queue = {.bytes_max = 2'000'000}});
  const auto late = Connect();
  const auto peer = handler_.WaitForPeer(0);
  std::vector<std::byte> bytes(1000);
  std::size_t sent = 0;
  for (; sent < 1000; ++sent) {
    bytes[0] = static_cast<std::byte>(sent & 0xff);
    bytes.resize(sent % 100 == 99 ? 100'000 : 1000);
    ASSERT_TRUE(peer->Send(bytes, std::vector<int>(sent % 100 == 5 ? 2 : 0, 0)).ok()) << sent;
  }
  for (std::size_t i = 0; i < sent; ++i) {
    const IpcMessage message = *std::move(late->Receive()).value();
    ASSERT_EQ(message.bytes.size(), i % 100 == 99 ? 100'000 : 1000);
    ASSERT_EQ(message.bytes[0], static_cast<std::byte>(i & 0xff));
    ASSERT_EQ(message.fds.size(), i % 100 == 5 ? 2 : 0);
  }
  EXPECT_EQ(Ask(*late, "and on"), "and on");
}

TEST_F(ServerTest, WhatIsNotOfTheProtocolDropsItsSenderAndLeavesNoDescriptor) {
  Start();
  const auto other = Connect();
  EXPECT_EQ(Ask(*other, "x"), "x");
  const std::size_t before = OpenFds();
  for (std::size_t i = 1; i <= 20; ++i) {
    const UniqueFd socket = RawSocket();
    ASSERT_TRUE(RawConnect(socket.get(), name_));
    SendRaw(socket.get(), PacketOf(0, 1, 0, i), std::vector<int>(i, 0));
    const Status why = handler_.WaitForEnd(handler_.WaitForPeer(i)->id());
    EXPECT_EQ(why.code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(OpenFds(), before);
  EXPECT_EQ(Ask(*other, "y"), "y");
}

// Without a descriptor to accept with, the listening socket stays readable.
TEST_F(ServerTest, WithoutDescriptorsItWaitsInsteadOfSpinning) {
  Start();
  EXPECT_EQ(Ask(*Connect(), "x"), "x");
  (void)handler_.WaitForEnd(handler_.WaitForPeer(0)->id());
  const UniqueFd socket = RawSocket();
  (void)MonotonicClock().NowNanos();  // UBSan needs descriptors for the first call of a kind.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  {
    const UniqueFd next(::dup(0));
    none.rlim_cur = static_cast<rlim_t>(next.get());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string another = IpcServer::Make({}, handler_).status().ToString();
  const std::uint64_t wakeups = server_->stats().wakeups;
  const bool connected = RawConnect(socket.get(), name_);
  while (server_->stats().accept_pauses < 2) std::this_thread::yield();
  const IpcServerStats stats = server_->stats();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(another,
            "ResourceExhausted: making a server of messages: Too many open files; raise the limit "
            "(ulimit -n)");
  ASSERT_TRUE(connected);
  EXPECT_LE(stats.wakeups - wakeups, 8);
  EXPECT_NE(handler_.WaitForPeer(1), nullptr);  // It comes once there are descriptors again.
}

TEST_F(ServerTest, OfAPeerThatIsKilledNothingIsLeft) {
  Start();
  EXPECT_EQ(Ask(*Connect(), "x"), "x");
  (void)handler_.WaitForEnd(handler_.WaitForPeer(0)->id());
  const std::size_t before = OpenFds();
  for (std::size_t i = 1; i <= 5; ++i) {
    // Sent before: the child reads no answer, and is soon dropped for it.
    const std::size_t messages = handler_.messages();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto connection = IpcConnection::Connect(name_);
      while (connection.ok()) {
        (void)connection.value()->Send(std::vector<std::byte>(5000), std::vector<int>{0});
      }
      ::_exit(1);
    }
    const auto peer = handler_.WaitForPeer(i);
    EXPECT_EQ(peer->pid(), child);
    while (handler_.messages() < messages + 20) std::this_thread::yield();
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    (void)handler_.WaitForEnd(peer->id());
  }
  EXPECT_EQ(OpenFds(), before);
}

// A copy of the connection lives on in a child: a trainer may fork any.
TEST_F(ServerTest, APeerEndsWithItsProcessWhoeverElseHasTheConnection) {
  Start();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    write_end.Reset();
    const auto connection = IpcConnection::Connect(name_);
    if (::fork() == 0) {
      char byte = 0;
      ::_exit(static_cast<int>(::read(read_end.get(), &byte, 1)));  // Until the test ends.
    }
    (void)connection.value()->Send(BytesOfText("forked"));
    while (true) ::pause();
  }
  const auto peer = handler_.WaitForPeer(0);
  EXPECT_EQ(peer->pid(), child);
  while (handler_.messages() < 1) std::this_thread::yield();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(handler_.WaitForEnd(peer->id()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// Property: many peers at once, each with random messages of random sizes with and without
// descriptors, each get their own answers in order.
TEST_F(ServerTest, ManyPeersGetTheirOwnAnswers) {
  Start();
  const std::size_t before = OpenFds();
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      Prng prng(t, 0, RandomStream::kOrder);
      std::vector<std::unique_ptr<IpcConnection>> mine;
      for (int i = 0; i < 16; ++i) mine.push_back(Connect());
      for (int round = 0; round < 400; ++round) {
        IpcConnection& connection = *mine[prng.Below(mine.size())];
        const std::uint64_t burst = 1 + prng.Below(4);
        std::vector<std::pair<std::string, std::size_t>> sent;
        for (std::uint64_t i = 0; i < burst; ++i) {
          const std::size_t bytes = prng.Below(prng.Below(10) == 0 ? 50'000 : 300);
          sent.emplace_back(std::string(bytes, static_cast<char>('a' + prng.Below(26))),
                            prng.Below(3));
          ASSERT_TRUE(
              connection
                  .Send(BytesOfText(sent.back().first), std::vector<int>(sent.back().second, 0))
                  .ok());
        }
        for (const auto& [text, fds] : sent) {
          const IpcMessage answer = *std::move(connection.Receive()).value();
          ASSERT_EQ(Text(answer), text);
          ASSERT_EQ(answer.fds.size(), fds);
        }
      }
    });
  }
  threads.clear();
  for (std::size_t i = 0; i < 64; ++i) (void)handler_.WaitForEnd(handler_.WaitForPeer(i)->id());
  EXPECT_EQ(OpenFds(), before);
}

}  // namespace
}  // namespace headrace
