#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/status.h"
#include "ipc/server.h"
#include "loader/machine/thread_executor.h"
#include "node/server/ending_jobs.h"
#include "node/server/hosted_job.h"
#include "node/server/lane_client.h"

namespace headrace {

struct NodeServerOptions {
  std::string name;                // of the socket, in the abstract namespace
  bool service = false;            // keeps running without clients
  std::uint64_t memory_bytes = 0;  // of all jobs and the share; 0: each has its own budget
  std::uint64_t share_bytes = 0;   // jobs of a service share what they read; 0: they do not
  // How long to wait for clients that have not connected: the first one, unless this is a service,
  // and the ranks of a job that failed to open, which get the error.
  std::int64_t await_ns = 10'000'000'000;
};

// Hosts the jobs of ranks that connect. The executable headrace-node runs it.
//
// Thread safety: Stop() from any thread; Run() once.
// Shutdown: Run() returns after Stop() or, unless this is a service, when the last client is gone
// and no other node needs samples of a job here. The destructor ends all jobs.
class NodeServer final : private IpcHandler {
 public:
  // Clients can connect once it returns.
  //
  // Errors: those of IpcServer::Make; ResourceExhausted  no thread
  //         InvalidArgument  a share without a service, or not below the limit of memory
  static Result<std::unique_ptr<NodeServer>> Make(NodeServerOptions options);
  ~NodeServer() override;
  NodeServer(const NodeServer&) = delete;
  NodeServer& operator=(const NodeServer&) = delete;

  void Run();
  void Stop() { stop_.request_stop(); }

 private:
  // A job that has clients.
  struct Hosted {
    std::shared_ptr<HostedJob> job;
    std::uint64_t number = 0;  // of all jobs of this process
    std::uint32_t clients = 0;
    bool ending = false;               // a client has left
    std::vector<std::string> folders;  // of its tiers
  };
  struct Connection {
    std::shared_ptr<LaneClient> client;
    bool greeted = false;
    bool closed = false;                 // sent CloseSession; may still hold batches
    std::string job;                     // its name; empty: in no job
    std::optional<OpenSession> delayed;  // waits until its folders are free
  };

  explicit NodeServer(NodeServerOptions options) : options_(std::move(options)) {}

  void OnConnected(const std::shared_ptr<IpcPeer>& peer) override;
  Status OnMessage(const std::shared_ptr<IpcPeer>& peer, IpcMessage message) override;
  void OnClosed(const std::shared_ptr<IpcPeer>& peer, const Status& why) override;

  Status OnMessage(Connection& connection, const ClientHello& hello);
  Status OnMessage(Connection& connection, OpenSession open);
  Status OnMessage(Connection& connection, const BatchNote& note);
  Status OnMessage(Connection& connection, const CloseSession& close);
  template <typename Request>
  Status OnMessage(Connection& connection, Request request);

  // True if a job that is about to end has a folder that this one needs: ranks that make new
  // loaders close the old ones one after the other.
  [[nodiscard]] bool HasToWait(const OpenSession& open) const;
  void OpenDelayed();
  void LeaveJob(Connection& connection);
  // Ends the job if it has no client.
  void Reap(const std::string& name);
  // Returns why the job could not be opened, if the client belongs to the launch that failed. A
  // process that began later belongs to the next launch, which may use the same name and succeed.
  Status FailureFor(const Connection& connection, const OpenSession& open);
  // Forgets failures that are too old for any rank.
  void ForgetFailures();
  Result<std::uint64_t> Admit(std::uint64_t number, const std::string& job, std::uint64_t bytes)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Sets how long the process may wait for a client.
  void SetIdle() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void WatchIdle(const std::stop_token& stop) HEADRACE_LOCKS_EXCLUDED(mutex_);

  const NodeServerOptions options_;
  ServiceMemory service_;
  std::stop_source stop_;  // then jobs do not wait for other nodes either

  // Used by the thread of Run().
  std::map<std::uint64_t, Connection> connections_;  // by peer
  std::map<std::string, Hosted> jobs_;
  // Failures of jobs that have ended, by name; each is dropped after await_ns.
  std::map<std::string, HostedJob::Failure> failures_;
  bool had_client_ = false;
  std::uint64_t jobs_made_ = 0;

  Mutex mutex_;
  CondVar idle_changed_;
  std::int64_t idle_until_ns_ HEADRACE_GUARDED_BY(mutex_) = -1;  // negative: not idle
  // Bytes by the job's number: a job that other nodes still need may have the next one's name.
  std::map<std::uint64_t, std::uint64_t> admitted_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t owing_ HEADRACE_GUARDED_BY(mutex_) = 0;  // jobs that wait for other nodes

  // Ends jobs that other nodes still need, while others are opened.
  EndingJobs ending_jobs_;
  // Opens and ends jobs one after the other, so that the folder of a job that ended is free for the
  // next.
  std::unique_ptr<ThreadExecutor> opener_;
  std::unique_ptr<IpcServer> server_;  // Last: calls the handler.
};

}  // namespace headrace
