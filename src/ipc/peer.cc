#include "ipc/peer.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {

std::string IpcPeer::name() const {
  return fmt::format("peer {} (process {})", id_, credentials_.pid);
}

Status IpcPeer::Send(std::span<const std::byte> bytes, std::span<const int> fds) {
  auto made = internal::OutPacket::Make(bytes, fds);
  if (!made.ok()) return made.status().WithContext(name());
  internal::OutPacket packet = std::move(made).value();
  MutexLock lock(mutex_);
  if (!why_.ok()) return why_;
  if (waiting_.empty()) {
    const auto sent = packet.Send(socket_.get(), /*wait=*/false);
    if (!sent.ok()) {
      Status failed = sent.status().WithContext(name());
      if (failed.code() == StatusCode::kUnavailable) CloseLocked(failed);
      return failed;
    }
    if (sent.value()) return {};
  } else if (waiting_bytes_ + packet.waiting_bytes() > limits_.bytes_max ||
             waiting_.size() >= limits_.messages_max ||
             waiting_fds_ + packet.waiting_fds() > limits_.fds_max) {
    CloseLocked(
        ResourceExhausted("{}: dropped, it does not read: {} messages of {} with {} descriptors "
                          "are queued, must be at most {}, {}, {}",
                          name(), waiting_.size(), FormatBytes(waiting_bytes_), waiting_fds_,
                          limits_.messages_max, FormatBytes(limits_.bytes_max), limits_.fds_max));
    return why_;
  }
  if (const Status owned = packet.Own(); !owned.ok()) return owned.WithContext(name());
  waiting_bytes_ += packet.waiting_bytes();
  waiting_fds_ += packet.waiting_fds();
  waiting_.push_back(std::move(packet));
  if (waiting_.size() == 1) WatchForRoom(true);
  return {};
}

void IpcPeer::Close(const Status& why) {
  HEADRACE_CHECK(!why.ok());
  MutexLock lock(mutex_);
  CloseLocked(why);
}

void IpcPeer::CloseLocked(const Status& why) {
  if (!why_.ok()) return;
  why_ = why;
  waiting_.clear();
  waiting_bytes_ = 0;
  waiting_fds_ = 0;
  // Wakes the server's thread, which closes. Fails if the peer has gone: the thread is awake then.
  (void)::shutdown(socket_.get(), SHUT_RDWR);
}

void IpcPeer::WatchForRoom(bool watch) {
  epoll_event event{};
  event.events = EPOLLIN | (watch ? std::uint32_t{EPOLLOUT} : 0U);
  event.data.u64 = id_;
  HEADRACE_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event) == 0);
}

std::optional<int> IpcPeer::OpenSocket() {
  MutexLock lock(mutex_);
  if (!why_.ok()) return std::nullopt;
  return socket_.get();
}

void IpcPeer::EndWithProcess() {
  MutexLock lock(mutex_);
  process_.Reset();                            // It stays readable.
  (void)::shutdown(socket_.get(), SHUT_RDWR);  // Fails if the connection has ended.
}

void IpcPeer::Flush() {
  MutexLock lock(mutex_);
  if (!why_.ok() || waiting_.empty()) return;
  while (!waiting_.empty()) {
    const internal::OutPacket& first = waiting_.front();
    const auto sent = first.Send(socket_.get(), /*wait=*/false);
    if (!sent.ok()) return CloseLocked(sent.status().WithContext(name()));
    if (!sent.value()) return;
    waiting_bytes_ -= first.waiting_bytes();
    waiting_fds_ -= first.waiting_fds();
    waiting_.pop_front();
  }
  WatchForRoom(false);
}

Status IpcPeer::Detach() {
  MutexLock lock(mutex_);
  HEADRACE_CHECK(!why_.ok());
  socket_.Reset();  // Also removes it from epoll.
  process_.Reset();
  return why_;
}

}  // namespace headrace
