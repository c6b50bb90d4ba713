#include "ipc/connection.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "base/shared_memory.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ipc/packet.h"
#include "ipc/testing/raw_socket.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::vector<std::byte> Pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::byte>((i * 7 + i / 251 + seed) & 0xff);
  }
  return pattern;
}

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

ino_t Inode(int fd) {
  struct stat stat {};
  EXPECT_EQ(::fstat(fd, &stat), 0);
  return stat.st_ino;
}

// Lowers the limit of descriptors to those that are open, as long as it lives.
class NoMoreFds {
 public:
  NoMoreFds() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const UniqueFd next(::dup(0));
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~NoMoreFds() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoMoreFds(const NoMoreFds&) = delete;
  NoMoreFds& operator=(const NoMoreFds&) = delete;

 private:
  rlimit before_{};
};

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    auto ends = IpcConnection::MakePair().value();
    one_ = std::move(ends.first);
    other_ = std::move(ends.second);
  }
  IpcMessage Received() { return *std::move(other_->Receive()).value(); }

  std::unique_ptr<IpcConnection> one_;
  std::unique_ptr<IpcConnection> other_;
};

TEST_F(ConnectionTest, MessagesComeWholeAndInOrderWhateverTheirSize) {
  std::vector<std::size_t> sizes = {0, 1, 200, 32 * kKiB, 32 * kKiB + 1, 3 * kMiB, 0, 5};
  for (const std::size_t size : sizes) {
    ASSERT_TRUE(one_->Send(Pattern(size, 3)).ok()) << size;
  }
  for (const std::size_t size : sizes) EXPECT_EQ(Received().bytes, Pattern(size, 3)) << size;
  ASSERT_TRUE(other_->Send(Bytes("back")).ok());
  EXPECT_EQ((*one_->Receive().value()).bytes.size(), 4);
}

TEST_F(ConnectionTest, DescriptorsComeWithTheirMessage) {
  const auto memory = SharedMemory::Make("test", 4096).value();
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<int> fds = {memory->fd(), null.get()};
  for (const std::size_t size : {std::size_t{10}, std::size_t{100'000}}) {
    ASSERT_TRUE(one_->Send(Pattern(size, 0), fds).ok());
    IpcMessage message = Received();
    EXPECT_EQ(message.bytes, Pattern(size, 0));
    ASSERT_EQ(message.fds.size(), 2);
    EXPECT_EQ(Inode(message.fds[1].get()), Inode(null.get()));
    EXPECT_EQ(::fcntl(message.fds[0].get(), F_GETFD), FD_CLOEXEC);
    const auto again = SharedMemory::Map(std::move(message.fds[0]), 4096).value();
    again->bytes()[1] = std::byte{9};
    EXPECT_EQ(memory->bytes()[1], std::byte{9});
  }
}

TEST_F(ConnectionTest, AMessageBeyondItsBoundsIsRefusedAndNothingIsSent) {
  const std::vector<std::byte> large(kIpcMessageBytesMax + 1);
  const Status status = one_->Send(large);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("must be at most 64.0 MiB and 8"));
  EXPECT_EQ(one_->Send({}, std::vector<int>(9, 0)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(one_->Send({}, std::vector<int>{-1}).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(other_->Receive(0).value().has_value());
  EXPECT_TRUE(one_->Send({}, std::vector<int>(8, 0)).ok());
  EXPECT_EQ(Received().fds.size(), 8);
}

TEST_F(ConnectionTest, WhatWasSentBeforeTheOtherSideWentIsReceivedFirst) {
  ASSERT_TRUE(other_->Send(Bytes("never read")).ok());  // Otherwise there would be no reset.
  ASSERT_TRUE(one_->Send(Bytes("last words")).ok());
  one_.reset();
  EXPECT_EQ(Received().bytes.size(), 10);
  const Status status = other_->Receive().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("has closed the connection"));
  EXPECT_EQ(other_->Send(Bytes("?")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(other_->Receive(0).status().code(), StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, APeerThatOnlyStopsToSendReadsAsGone) {
  ASSERT_EQ(::shutdown(one_->fd(), SHUT_WR), 0);
  EXPECT_EQ(other_->Receive().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(other_->Send(Bytes("still read")).ok());
}

TEST_F(ConnectionTest, APeerThatOnlyStopsToReceiveCanNotBeSentTo) {
  ASSERT_EQ(::shutdown(one_->fd(), SHUT_RD), 0);
  EXPECT_EQ(other_->Send(Bytes("?")).code(), StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, ShutdownEndsACallThatWaits) {
  std::jthread waiting([&] {
    EXPECT_EQ(other_->Receive().status().code(), StatusCode::kCancelled);
    EXPECT_EQ(other_->Send({}).code(), StatusCode::kCancelled);
  });
  other_->Shutdown();
  waiting.join();
  EXPECT_EQ(one_->Receive().status().code(), StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, ATimeThatIsOverIsNoMessageAndNoError) {
  EXPECT_FALSE(other_->Receive(0).value().has_value());
  EXPECT_FALSE(other_->Receive(1000).value().has_value());
  ASSERT_TRUE(one_->Send({}).ok());
  EXPECT_TRUE(other_->Receive(INT64_MAX).value().has_value());
}

TEST_F(ConnectionTest, ASenderWaitsOrGivesUpWhileTheOtherSideDoesNotRead) {
  unsigned sent = 0;
  Status status;
  while ((status = one_->Send(Pattern(1000, sent), {}, 0)).ok()) ++sent;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_GE(sent, 100);
  EXPECT_EQ(one_->Send({}, {}, 1000).code(), StatusCode::kDeadlineExceeded);
  std::jthread patient([&] { EXPECT_TRUE(one_->Send(Pattern(1000, sent)).ok()); });
  for (unsigned i = 0; i <= sent; ++i) EXPECT_EQ(Received().bytes, Pattern(1000, i));
}

// As in Python, for a socket with a timeout.
TEST_F(ConnectionTest, ASocketThatDoesNotBlockIsWaitedFor) {
  ASSERT_EQ(::fcntl(other_->fd(), F_SETFL, O_NONBLOCK), 0);
  std::jthread waiting([&] { EXPECT_EQ(Received().bytes.size(), 3); });
  ASSERT_TRUE(one_->Send(Bytes("abc")).ok());
}

struct Malformed {
  std::string claim;
  std::function<void(int socket)> send;
};

std::vector<Malformed> MalformedPackets() {
  const auto memfd = [](std::size_t bytes, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  return {
      {"no header",
       [](int to) {
         SendRaw(to, std::vector<std::byte>(7), {0, 0});
       }},
      {"more than a packet", [](int to) { SendRaw(to, PacketOf(40000, 1, 0, 40000), {0}); }},
      {"a kind that does not exist", [](int to) { SendRaw(to, PacketOf(0, 1, 2, 0), {0}); }},
      {"more bytes announced", [](int to) { SendRaw(to, PacketOf(9, 1, 0, 8), {0}); }},
      {"fewer bytes announced", [](int to) { SendRaw(to, PacketOf(7, 1, 0, 8), {0}); }},
      {"more descriptors announced", [](int to) { SendRaw(to, PacketOf(0, 2, 0, 0), {0}); }},
      {"fewer descriptors announced",
       [](int to) {
         SendRaw(to, PacketOf(0, 1, 0, 0), {0, 0});
       }},
      {"descriptors not announced", [](int to) { SendRaw(to, PacketOf(0, 0, 0, 0), {0}); }},
      {"as many as may be, and more",
       [](int to) { SendRaw(to, PacketOf(0, 8, 0, 0), std::vector<int>(40)); }},
      {"too many announced",
       [](int to) { SendRaw(to, PacketOf(0, 9, 0, 0), std::vector<int>(9)); }},
      {"large without a descriptor", [](int to) { SendRaw(to, PacketOf(40000, 0, 1, 0), {}); }},
      {"large in no memfd", [](int to) { SendRaw(to, PacketOf(40000, 0, 1, 0), {0}); }},
      {"large that can still change",
       [=](int to) {
         const UniqueFd fd = memfd(40000, kSeals & ~(F_SEAL_WRITE | F_SEAL_SEAL));
         SendRaw(to, PacketOf(40000, 0, 1, 0), {fd.get()});
       }},
      {"large of another size",
       [=](int to) {
         const UniqueFd fd = memfd(39999, kSeals);
         SendRaw(to, PacketOf(40000, 0, 1, 0), {fd.get()});
       }},
      {"large with a hole, which its sender has no memory for",
       [=](int to) {
         const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
         EXPECT_EQ(::ftruncate(fd.get(), 40000), 0);
         EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kSeals), 0);
         SendRaw(to, PacketOf(40000, 0, 1, 0), {fd.get()});
       }},
      {"large beyond the bound",
       [=](int to) {
         const UniqueFd fd = memfd(kIpcMessageBytesMax + 1, kSeals);
         SendRaw(to, PacketOf(kIpcMessageBytesMax + 1, 0, 1, 0), {fd.get()});
       }},
      {"large and inline",
       [=](int to) {
         const UniqueFd fd = memfd(40000, kSeals);
         SendRaw(to, PacketOf(40000, 0, 1, 5), {fd.get()});
       }},
  };
}

TEST_F(ConnectionTest, WhatIsNotOfTheProtocolIsRefusedAndItsDescriptorsClosed) {
  const std::size_t before = OpenFds();
  for (const Malformed& packet : MalformedPackets()) {
    packet.send(one_->fd());
    EXPECT_EQ(other_->Receive().status().code(), StatusCode::kDataLoss) << packet.claim;
    EXPECT_EQ(OpenFds(), before) << packet.claim;
  }
}

TEST_F(ConnectionTest, APacketOfNothingReadsAsTheEndAndItsDescriptorsAreClosed) {
  const std::size_t before = OpenFds();
  SendRaw(one_->fd(), {}, {0, 0});
  EXPECT_EQ(other_->Receive().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(OpenFds(), before);
}

TEST_F(ConnectionTest, WithoutDescriptorsLeftAMessageWithSomeIsAnErrorThatSaysSo) {
  ASSERT_TRUE(one_->Send(Bytes("x"), std::vector<int>{0, 0}).ok());
  ASSERT_TRUE(one_->Send(Bytes("y")).ok());
  {
    const NoMoreFds none;
    const Status status = other_->Receive().status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(),
                HasSubstr("2 descriptors: 0 could be opened; raise the limit (ulimit -n)"));
    EXPECT_EQ(one_->Send(Pattern(100'000, 0)).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(
        IpcConnection::MakePair().status().ToString(),
        "ResourceExhausted: making two connected sockets: Too many open files; raise the limit "
        "(ulimit -n)");
    EXPECT_EQ(IpcConnection::Connect("somebody").status().ToString(),
              "ResourceExhausted: connecting to socket @somebody: Too many open files; raise the "
              "limit (ulimit -n)");
    EXPECT_EQ(internal::PeerOf(-1).status().ToString(),
              "InvalidArgument: reading the credentials of a peer: Bad file descriptor");
  }
  EXPECT_EQ(Received().bytes.size(), 1);
}

TEST_F(ConnectionTest, OnlyASocketOfWholeMessagesIsAConnection) {
  EXPECT_EQ(IpcConnection::FromFd(UniqueFd(::open("/dev/null", O_RDONLY))).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(IpcConnection::FromFd(UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0))).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(IpcConnection::FromFd(UniqueFd()).status().code(), StatusCode::kInvalidArgument);
}

TEST(ConnectTest, ANameThatNobodyServesOrThatCanNotBeIsAnError) {
  const Status nobody = IpcConnection::Connect(UniqueSocketName()).status();
  EXPECT_EQ(nobody.code(), StatusCode::kUnavailable);
  EXPECT_THAT(nobody.message(), HasSubstr("nobody serves it"));
  EXPECT_EQ(IpcConnection::Connect("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(IpcConnection::Connect(std::string(108, 'x')).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ConnectTest, AServerThatDoesNotAcceptKeepsNobodyWaiting) {
  const std::string name = UniqueSocketName();
  const UniqueFd listener = RawSocket();
  ASSERT_TRUE(RawListen(listener.get(), name, 1));
  std::vector<std::unique_ptr<IpcConnection>> held;
  Status status;
  while (status.ok()) {
    ASSERT_LT(held.size(), 10);
    auto connection = IpcConnection::Connect(name);
    status = connection.status();
    if (status.ok()) {
      EXPECT_EQ(connection.value()->peer_pid(), ::getpid());
      held.push_back(std::move(connection).value());
    }
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("too many connections wait"));
}

// A name in the abstract namespace belongs to the first process that takes it, of any user.
TEST(ConnectTest, AServerOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = UniqueSocketName();
  auto ends = IpcConnection::MakePair().value();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ends.first.reset();
    const UniqueFd listener = RawSocket();
    const bool serves = ::setuid(kNobody) == 0 && RawListen(listener.get(), name, 4);
    (void)ends.second->Send(Bytes(serves ? "yes" : ""));
    (void)ends.second->Receive();
    ::_exit(0);
  }
  ends.second.reset();
  ASSERT_EQ(ends.first->Receive().value()->bytes.size(), 3);
  const Status status = IpcConnection::Connect(name).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("it is served by user 65534 (process " +
                                          std::to_string(child) + "), not by user 0"));
  ends.first.reset();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// Property: messages of any size and with any descriptors, sent both ways concurrently, arrive
// unchanged and in order; and no descriptor stays open.
TEST_F(ConnectionTest, RandomMessagesBothWaysComeAsTheyWereSent) {
  const std::size_t before = OpenFds();
  {
    const auto memory = SharedMemory::Make("test", 4096).value();
    const ino_t inode = Inode(memory->fd());
    const auto shape = [](Prng& prng) {
      const std::size_t max = prng.Below(20) == 0 ? 200'000 : prng.Below(4) == 0 ? 40'000 : 400;
      const std::size_t bytes = prng.Below(max);
      return std::pair(bytes, prng.Below(4) == 0 ? prng.Below(9) : 0);
    };
    const auto send = [&](IpcConnection& by, std::uint64_t seed) {
      Prng prng(seed, 0, RandomStream::kOrder);
      for (unsigned i = 0; i < 500; ++i) {
        const auto [bytes, fds] = shape(prng);
        ASSERT_TRUE(by.Send(Pattern(bytes, i), std::vector<int>(fds, memory->fd())).ok());
      }
    };
    const auto receive = [&](IpcConnection& by, std::uint64_t seed) {
      Prng prng(seed, 0, RandomStream::kOrder);
      for (unsigned i = 0; i < 500; ++i) {
        const auto [bytes, fds] = shape(prng);
        const IpcMessage message = *std::move(by.Receive()).value();
        ASSERT_EQ(message.bytes, Pattern(bytes, i));
        ASSERT_EQ(message.fds.size(), fds);
        for (const UniqueFd& fd : message.fds) ASSERT_EQ(Inode(fd.get()), inode);
      }
    };
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { send(*one_, 1); });
    threads.emplace_back([&] { send(*other_, 2); });
    threads.emplace_back([&] { receive(*one_, 2); });
    receive(*other_, 1);
  }
  EXPECT_EQ(OpenFds(), before);
}

// A child that is killed while it sends leaves whole messages, then the end.
TEST_F(ConnectionTest, OfAChildThatIsKilledOnlyWholeMessagesCome) {
  for (int round = 0; round < 10; ++round) {
    auto ends = IpcConnection::MakePair().value();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto mine = IpcConnection::FromFd(UniqueFd(::dup(ends.second->fd()))).value();
      for (unsigned i = 0;; ++i) {
        (void)mine->Send(Pattern(i % 3 == 0 ? 100'000 : 1000, i), std::vector<int>{0});
      }
    }
    ends.second.reset();
    const std::size_t before = OpenFds();
    unsigned received = 0;
    while (true) {
      auto message = ends.first->Receive();
      if (!message.ok()) {
        EXPECT_EQ(message.status().code(), StatusCode::kUnavailable);
        break;
      }
      ASSERT_EQ(message.value()->bytes, Pattern(received % 3 == 0 ? 100'000 : 1000, received));
      if (++received == 20 + static_cast<unsigned>(round)) {
        ASSERT_EQ(::kill(child, SIGKILL), 0);
      }
    }
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(OpenFds(), before);
  }
}

}  // namespace
}  // namespace headrace
