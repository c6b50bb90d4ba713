#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "headrace/status.h"
#include "ipc/connection.h"
#include "ipc/message.h"
#include "ipc/peer.h"

namespace headrace {

// The callbacks of a server. All come from the thread of Run(), one at a time: a slow one delays
// all peers.
class IpcHandler {
 public:
  virtual ~IpcHandler() = default;

  // A peer connected. Not called for added peers.
  virtual void OnConnected(const std::shared_ptr<IpcPeer>& peer) = 0;

  // An error drops the peer, for that reason.
  virtual Status OnMessage(const std::shared_ptr<IpcPeer>& peer, IpcMessage message) = 0;

  // The last call for a peer, once for each. `why`: Unavailable if it closed or died, Cancelled if
  // the server stopped, DataLoss after a violation of the protocol, or the reason of a drop.
  virtual void OnClosed(const std::shared_ptr<IpcPeer>& peer, const Status& why) = 0;
};

struct IpcServerOptions {
  std::string name;  // served in the abstract namespace; empty: none, peers are added
  std::size_t peers_max = 64;
  IpcQueueLimits queue;  // of each peer
};

struct IpcServerStats {
  std::uint64_t accepted = 0;
  std::uint64_t refused_other_user = 0;
  std::uint64_t refused_too_many = 0;
  std::uint64_t accept_pauses = 0;  // pauses because no descriptor was left
  std::uint64_t wakeups = 0;        // of the thread of Run()
};

// Serves many processes of the same user from the thread that calls Run(). A peer of another user
// is refused before a byte of it is read. A peer that does not read, or violates the protocol, is
// dropped and delays no other. A connection ends with the process that made it, even if children of
// that process share it.
//
// Thread safety: Add(), stats() from any thread; Run() once.
// Ownership: shares its peers with their users; `handler` is the caller's.
// Shutdown: Run() ends on request; then all peers are closed, and the handler is not called any
// more. Must not be destroyed while Run() runs; if it never ran, the destructor closes the peers.
// Limits: peers_max, and IpcQueueLimits for each.
class IpcServer {
 public:
  // From here on clients can connect; Run() serves them. `handler` must outlive the server.
  //
  // Errors: FailedPrecondition  another process serves the name
  //         InvalidArgument     a name of more than 107 bytes
  //         ResourceExhausted   no descriptor is left
  static Result<std::unique_ptr<IpcServer>> Make(IpcServerOptions options, IpcHandler& handler);
  ~IpcServer();
  IpcServer(const IpcServer&) = delete;
  IpcServer& operator=(const IpcServer&) = delete;

  // Makes a peer of the other end of `connection`, for example a child's. The handler may be called
  // for it before this returns. Users are not compared.
  //
  // Errors: ResourceExhausted   there are peers_max peers, or no memory to watch it
  //         FailedPrecondition  Run() has ended
  Result<std::shared_ptr<IpcPeer>> Add(std::unique_ptr<IpcConnection> connection)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Serves until `stop` is requested; returns immediately if it was before.
  void Run(const std::stop_token& stop) HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] IpcServerStats stats() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // The epoll data of other events; peers count from kFirstPeer, and the events of a peer's process
  // add kProcess.
  static constexpr std::uint64_t kWake = 0;
  static constexpr std::uint64_t kListener = 1;
  static constexpr std::uint64_t kFirstPeer = 2;
  static constexpr std::uint64_t kProcess = std::uint64_t{1} << 63;

  IpcServer(IpcServerOptions options, IpcHandler& handler)
      : options_(std::move(options)), handler_(handler) {}
  Status Open();
  Status Listen();
  void AcceptAll();
  void Accept(UniqueFd socket);
  // `process` may be invalid.
  Result<std::shared_ptr<IpcPeer>> AddSocket(UniqueFd socket, UniqueFd process,
                                             const ucred& credentials)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void WatchListener(bool watch);
  // How long Run() may wait: until connections are accepted again, if they are paused.
  int WaitMillis();
  void OnPeerEvent(std::uint64_t id, std::uint32_t events);
  void Drop(const std::shared_ptr<IpcPeer>& peer);
  void DropAll();
  std::shared_ptr<IpcPeer> Find(std::uint64_t id) const HEADRACE_LOCKS_EXCLUDED(mutex_);

  const IpcServerOptions options_;
  IpcHandler& handler_;
  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd listener_;
  std::int64_t accept_again_at_ns_ = 0;  // 0: connections are accepted. Of the thread of Run().

  mutable Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<IpcPeer>> peers_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t next_id_ HEADRACE_GUARDED_BY(mutex_) = kFirstPeer;
  bool ended_ HEADRACE_GUARDED_BY(mutex_) = false;
  IpcServerStats stats_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
