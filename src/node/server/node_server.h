#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "ipc/server.h"
#include "loader/machine/thread_executor.h"
#include "node/server/hosted_job.h"
#include "node/server/lane_client.h"

namespace headrace {

class KeptTiers;

struct NodeServerOptions {
  std::string name;                // socket served, in the abstract namespace
  bool service = false;            // goes on without clients
  std::uint64_t memory_bytes = 0;  // of all jobs together; 0: each has its own budget
  // How long clients are awaited that nothing has been heard of: the first, unless it is a service,
  // and the ranks of a job that could not be opened, to tell them why.
  std::int64_t await_ns = 10'000'000'000;
};

// Hosts the jobs of ranks that connect: what the executable headrace-node runs.
//
// Thread safety: Stop() from any thread; Run() once.
// Shutdown: Run() returns when asked to, or, unless it is a service, when its last client is gone;
// the destructor ends what jobs there are.
class NodeServer final : private IpcHandler {
 public:
  // From here on clients can connect.
  //
  // Errors: those of IpcServer::Make; ResourceExhausted  no thread
  static Result<std::unique_ptr<NodeServer>> Make(NodeServerOptions options);
  ~NodeServer() override;
  NodeServer(const NodeServer&) = delete;
  NodeServer& operator=(const NodeServer&) = delete;

  void Run();
  void Stop() { stop_.request_stop(); }

 private:
  // A job, as long as a client is in it.
  struct Hosted {
    std::shared_ptr<HostedJob> job;
    std::uint32_t clients = 0;
    bool ending = false;               // a client has left
    std::vector<std::string> folders;  // of its tiers
  };
  struct Session {
    std::shared_ptr<LaneClient> client;
    bool greeted = false;
    bool closed = false;             // said good-bye, and may still hold batches
    std::string job;                 // by name; empty: in none
    std::optional<OpenJob> delayed;  // to be opened when its folders are free
  };

  explicit NodeServer(NodeServerOptions options) : options_(std::move(options)) {}

  void OnConnected(const std::shared_ptr<IpcPeer>& peer) override;
  Status OnMessage(const std::shared_ptr<IpcPeer>& peer, IpcMessage message) override;
  void OnClosed(const std::shared_ptr<IpcPeer>& peer, const Status& why) override;

  Status OnMessage(Session& session, const ClientHello& hello);
  Status OnMessage(Session& session, OpenJob open);
  Status OnMessage(Session& session, const BatchNote& note);
  Status OnMessage(Session& session, const CloseJob& close);
  template <typename Request>
  Status OnMessage(Session& session, Request request);

  // Whether a job that is about to end has a folder that this one needs: ranks that make their
  // loaders anew close the old ones one after the other.
  [[nodiscard]] bool HasToWait(const OpenJob& open) const;
  void OpenDelayed();
  void LeaveJob(Session& session);
  // Ends what has no client.
  void Reap(const std::string& name);
  // Why the job could not be opened, if the client is of the launch that failed: one that began
  // later is of the next, which may well have the name again, and succeed.
  Status FailureFor(const Session& session, const OpenJob& open);
  // Forgets failures that are too old for any rank.
  void ForgetFailures();
  Result<std::uint64_t> Admit(const std::string& job, std::uint64_t bytes)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // How long the process may wait for a client; negative: for ever.
  void SetIdle() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void WatchIdle(const std::stop_token& stop) HEADRACE_LOCKS_EXCLUDED(mutex_);

  const NodeServerOptions options_;
  std::shared_ptr<KeptTiers> kept_;  // null: it is no service
  std::stop_source stop_;

  // Of the thread of Run().
  std::map<std::uint64_t, Session> sessions_;  // by peer
  std::map<std::string, Hosted> jobs_;
  // Of jobs that are gone, by name; each is forgotten when await_ns have passed.
  std::map<std::string, HostedJob::Failure> failures_;
  bool had_client_ = false;

  Mutex mutex_;
  CondVar idle_changed_;
  std::int64_t idle_until_ns_ HEADRACE_GUARDED_BY(mutex_) = -1;  // negative: it is not idle
  std::map<std::string, std::uint64_t> admitted_ HEADRACE_GUARDED_BY(mutex_);  // bytes, by job

  // Opens and ends jobs one after the other: a folder that one had is free for the next.
  std::unique_ptr<ThreadExecutor> opener_;
  std::unique_ptr<IpcServer> server_;  // Last: calls the handler.
};

}  // namespace headrace
