#include "ipc/server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/process_id.h"
#include "base/units.h"
#include "ipc/address.h"
#include "ipc/packet.h"

namespace headrace {
namespace {

constexpr int kEventsMax = 64;
constexpr std::int64_t kAcceptPauseNs = 100 * kNsPerMs;

bool Watch(int epoll, int fd, std::uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// The process that has the name already, as far as known: "user 1000 (process 12, since 2026-11-22
// 10:03:05)".
std::string ServerOf(const internal::AbstractAddress& address) {
  const UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!client || ::connect(client.get(), address.get(), address.size) != 0) {
    return "another process";
  }
  const auto peer = internal::PeerOf(client.get());
  if (!peer.ok()) return "another process";
  std::string who = internal::Described(peer.value());
  if (const auto age_ns = ProcessAgeNs(peer.value().pid)) {
    const std::time_t began = std::time(nullptr) - *age_ns / kNsPerSecond;
    std::tm local{};
    std::array<char, 32> text{};
    if (::localtime_r(&began, &local) != nullptr &&
        std::strftime(text.data(), text.size(), ", since %F %T", &local) > 0) {
      who.insert(who.size() - 1, text.data());
    }
  }
  return who;
}

}  // namespace

Result<std::unique_ptr<IpcServer>> IpcServer::Make(IpcServerOptions options, IpcHandler& handler) {
  std::unique_ptr<IpcServer> server(new IpcServer(std::move(options), handler));
  HEADRACE_RETURN_IF_ERROR(server->Open());
  return server;
}

IpcServer::~IpcServer() { DropAll(); }

Status IpcServer::Open() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_ || !Watch(epoll_.get(), wake_.get(), kWake)) {
    return internal::SystemError("making a server of messages", errno);
  }
  return options_.name.empty() ? Status() : Listen();
}

Status IpcServer::Listen() {
  const std::string doing = "serving socket @" + options_.name;
  HEADRACE_ASSIGN_OR_RETURN(const auto address, internal::AbstractAddress::Make(options_.name));
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return internal::SystemError(doing, errno);
  if (::bind(listener_.get(), address.get(), address.size) != 0) {
    if (errno != EADDRINUSE) return internal::SystemError(doing, errno);
    return FailedPrecondition("{}: {} serves it; end that, or choose another name", doing,
                              ServerOf(address));
  }
  const int backlog = static_cast<int>(std::min<std::size_t>(options_.peers_max, SOMAXCONN));
  if (::listen(listener_.get(), backlog) != 0 || !Watch(epoll_.get(), listener_.get(), kListener)) {
    return internal::SystemError(doing, errno);
  }
  return {};
}

Result<std::shared_ptr<IpcPeer>> IpcServer::Add(std::unique_ptr<IpcConnection> connection) {
  HEADRACE_ASSIGN_OR_RETURN(const ucred credentials, internal::PeerOf(connection->fd()));
  // No process to watch: the other end is a child's, and the pair was made by its parent.
  return AddSocket(std::move(connection->fd_), UniqueFd(), credentials);
}

Result<std::shared_ptr<IpcPeer>> IpcServer::AddSocket(UniqueFd socket, UniqueFd process,
                                                      const ucred& credentials) {
  const int fd = socket.get();
  const int process_fd = process.get();
  MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("adding a peer: the server ended; make another one");
  if (peers_.size() >= options_.peers_max) {
    ++stats_.refused_too_many;
    return ResourceExhausted("adding a peer: there are {}, must be at most {}", peers_.size(),
                             options_.peers_max);
  }
  const std::shared_ptr<IpcPeer> peer(new IpcPeer(next_id_, std::move(socket), std::move(process),
                                                  credentials, epoll_.get(), options_.queue));
  if (!Watch(epoll_.get(), fd, peer->id()) ||
      (process_fd >= 0 && !Watch(epoll_.get(), process_fd, peer->id() | kProcess))) {
    return internal::SystemError("adding a peer", errno);
  }
  ++next_id_;
  peers_.emplace(peer->id(), peer);
  return peer;
}

void IpcServer::Run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const std::uint64_t one = 1;
    HEADRACE_CHECK(::write(wake_.get(), &one, sizeof(one)) == sizeof(one));
  });
  std::array<epoll_event, kEventsMax> events{};
  while (!stop.stop_requested()) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, WaitMillis());
    HEADRACE_CHECK(count >= 0 || errno == EINTR);
    {
      MutexLock lock(mutex_);
      ++stats_.wakeups;
    }
    for (int i = 0; i < count && !stop.stop_requested(); ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kListener) {
        AcceptAll();
      } else if ((event.data.u64 & kProcess) != 0) {
        const std::shared_ptr<IpcPeer> peer = Find(event.data.u64 & ~kProcess);
        if (peer != nullptr) peer->EndWithProcess();
      } else if (event.data.u64 >= kFirstPeer) {
        OnPeerEvent(event.data.u64, event.events);
      }
    }
  }
  listener_.Reset();  // New clients get "connection refused" from here on.
  DropAll();
}

// Without a descriptor a connection stays in the queue, and the listener stays readable: polling
// again immediately would take a whole core.
int IpcServer::WaitMillis() {
  if (accept_again_at_ns_ == 0) return -1;
  const std::int64_t left_ns = accept_again_at_ns_ - MonotonicClock().NowNanos();
  if (left_ns > 0) return static_cast<int>(left_ns / kNsPerMs + 1);
  accept_again_at_ns_ = 0;
  WatchListener(true);
  return -1;
}

void IpcServer::WatchListener(bool watch) {
  epoll_event event{};
  event.events = watch ? std::uint32_t{EPOLLIN} : 0U;
  event.data.u64 = kListener;
  HEADRACE_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event) == 0);
}

void IpcServer::AcceptAll() {
  for (std::size_t i = 0; i < options_.peers_max; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) {
      Accept(std::move(socket));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      accept_again_at_ns_ = MonotonicClock().NowNanos() + kAcceptPauseNs;
      WatchListener(false);
      MutexLock lock(mutex_);
      ++stats_.accept_pauses;
      return;
    }
  }
}

void IpcServer::Accept(UniqueFd socket) {
  const auto credentials = internal::PeerOf(socket.get());
  if (!credentials.ok() || credentials.value().uid != ::geteuid()) {
    MutexLock lock(mutex_);
    ++stats_.refused_other_user;
    return;
  }
  internal::SetSocketRoom(socket.get());
  UniqueFd process;
  if (credentials.value().pid != ::getpid()) {
    auto found = internal::ProcessOf(socket.get(), credentials.value());
    if (found.ok()) {
      process = std::move(found).value();
    } else {
      (void)::shutdown(socket.get(), SHUT_RDWR);  // Delivers what it sent, then the end.
    }
  }
  const auto peer = AddSocket(std::move(socket), std::move(process), credentials.value());
  if (!peer.ok()) return;
  {
    MutexLock lock(mutex_);
    ++stats_.accepted;
  }
  handler_.OnConnected(peer.value());
}

void IpcServer::OnPeerEvent(std::uint64_t id, std::uint32_t events) {
  const std::shared_ptr<IpcPeer> peer = Find(id);
  if (peer == nullptr) return;  // Dropped by an earlier event.
  if ((events & EPOLLOUT) != 0) peer->Flush();
  // One message a turn: a peer that sends without pause does not block the others.
  if (const std::optional<int> socket = peer->OpenSocket(); socket && (events & ~EPOLLOUT) != 0) {
    auto message = internal::ReceivePacket(*socket, /*wait=*/false);
    if (!message.ok()) {
      peer->Close(message.status().WithContext(peer->name()));
    } else if (message.value()) {
      const Status status = handler_.OnMessage(peer, *std::move(message).value());
      if (!status.ok()) peer->Close(status);
    }
  }
  if (!peer->OpenSocket()) Drop(peer);
}

void IpcServer::Drop(const std::shared_ptr<IpcPeer>& peer) {
  {
    MutexLock lock(mutex_);
    if (peers_.erase(peer->id()) == 0) return;
  }
  handler_.OnClosed(peer, peer->Detach());
}

void IpcServer::DropAll() {
  std::map<std::uint64_t, std::shared_ptr<IpcPeer>> peers;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    peers.swap(peers_);
  }
  for (const auto& [id, peer] : peers) {
    peer->Close(Status(StatusCode::kCancelled, peer->name() + ": the server stopped"));
    handler_.OnClosed(peer, peer->Detach());
  }
}

std::shared_ptr<IpcPeer> IpcServer::Find(std::uint64_t id) const {
  MutexLock lock(mutex_);
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second;
}

IpcServerStats IpcServer::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace headrace
