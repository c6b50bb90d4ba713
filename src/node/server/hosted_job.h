#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "headrace/status.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/session.h"
#include "node/protocol/messages.h"
#include "node/server/collective_start.h"
#include "node/server/lane_client.h"
#include "node/server/local_ranks.h"
#include "node/server/shared_takes.h"

namespace headrace {

class JobNodes;

// A job of several ranks in their node process: the shared engine and the connected ranks. Each
// rank is known by its local rank. Ranks that get the same batches share a lane of the engine.
//
// Ranks connect one by one. The first defines the job; the others must ask for the same job. A run
// is collective:
//   1. A rank that asks for a position leaves its current run; the others continue theirs.
//   2. When all connected ranks have asked for the same position, a run begins there.
//   3. If positions differ, no run begins, and each rank gets an error that names all positions.
//   4. A rank that waited too long ends the wait of all, if some ranks never connected: the error
//      names these. Waits for a connected rank have no limit: stats name it.
// A rank that disconnects for any reason leaves its run; the others continue without it. A rank
// that comes back meanwhile gets an error.
//
// Thread safety: every method may be called from any thread. Note() and failure() run on the
// calling thread; the other methods queue their work for the job's own thread, in the order of the
// calls, and answer by message.
// Shutdown: the destructor finishes the calls made before it, ends the run, and waits for its reads
// as Session does.
class HostedJob {
 public:
  // Called with the bytes that the job needs, before it takes any. Returns the bytes that are then
  // left for tiers that are retained for other jobs.
  using Admit = std::function<Result<std::uint64_t>(std::uint64_t bytes)>;

  // `hurry`: requested when the process is to end: then the job does not wait for other nodes.
  //
  // Errors: ResourceExhausted  no thread
  static Result<std::unique_ptr<HostedJob>> Make(const OpenSession& first, Admit admit,
                                                 ServiceMemory service, std::stop_token hurry = {});
  ~HostedJob();
  HostedJob(const HostedJob&) = delete;
  HostedJob& operator=(const HostedJob&) = delete;

  // A rank joins. Answered by SessionOpened, or by Refused: then the job has failed, and all of its
  // ranks get the error. The rank takes part from the answer until Close().
  void Open(std::shared_ptr<LaneClient> client, OpenSession open);

  using Request = std::variant<StartRun, StartListRun, StopRun, AskStats, AskSteps, AskRows,
                               AskRowsOf, StillWaiting, ConnectNodes>;
  void Do(std::shared_ptr<LaneClient> client, Request request);
  void Note(const std::shared_ptr<LaneClient>& client, const BatchNote& note)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The client is gone. Its consumer keeps the batches that it holds.
  void Close(std::shared_ptr<LaneClient> client);

  // Session::owes(), for a job that all clients have left; the destructor waits while it is true.
  [[nodiscard]] bool owes() const { return exchanges_ && session_->owes(); }

  // The error of a failed open, kept until every rank has received it.
  struct Failure {
    Status why;
    std::int64_t at_ns = 0;          // CLOCK_MONOTONIC
    std::set<std::uint32_t> untold;  // local ranks; never empty
  };
  [[nodiscard]] std::optional<Failure> failure() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  HostedJob(const OpenSession& first, Admit admit, ServiceMemory service, std::stop_token hurry)
      : first_(first),
        admit_(std::move(admit)),
        service_(std::move(service)),
        hurry_(std::move(hurry)),
        ranks_(first.local_ranks),
        start_(first.job, first.process - first.local_rank, first.local_ranks),
        takes_(first.lanes) {
    // Until it joins: where its neighbours are.
    for (std::uint32_t local_rank = 0; local_rank < first.local_ranks; ++local_rank) {
      ranks_[local_rank].lane = local_rank * first.lanes / first.local_ranks;
    }
  }

  // Runs `work` on the job's thread.
  void Post(std::function<void()> work);
  Status OpenFirst(const OpenSession& open, int pid);
  Status Join(const std::shared_ptr<LaneClient>& client, const OpenSession& open);
  void DoOpen(const std::shared_ptr<LaneClient>& client, const OpenSession& open);
  void DoStart(std::uint32_t local_rank, CollectiveStart::Wish wish);
  void DoClose(const std::shared_ptr<LaneClient>& client);
  void DoStillWaiting(std::uint32_t local_rank, const StillWaiting& still)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Answer(const std::shared_ptr<LaneClient>& client, std::uint32_t local_rank,
              Request& request);
  void LeaveRun(std::uint32_t local_rank) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void BeginIfAllAsked() HEADRACE_LOCKS_EXCLUDED(mutex_);
  Status Begin(const CollectiveStart::Wish& wish);
  // Clients, each with the number of its run.
  using Told = std::vector<std::pair<std::shared_ptr<LaneClient>, std::uint64_t>>;
  static void Tell(const Told& told, const Status& why);
  // Sends the error to all ranks that asked for a run: no run begins.
  void EndWait(const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Ends the run, lets none begin, and sends the error to every connected rank.
  void FailAll(const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // A rank took the batch. Returns whether others of its node can never start the run they wait
  // for.
  Status Took(std::uint32_t local_rank, SessionRun& run, const std::shared_ptr<const Batch>& batch,
              std::int64_t taken_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void TellOfTiers(const std::shared_ptr<LaneClient>& client, std::uint32_t local_rank)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  const OpenSession first_;
  const Admit admit_;
  const ServiceMemory service_;
  const std::stop_token hurry_;

  mutable Mutex mutex_;
  std::vector<LocalRank> ranks_ HEADRACE_GUARDED_BY(mutex_);
  CollectiveStart start_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<SharedTakes> takes_ HEADRACE_GUARDED_BY(mutex_);  // of each lane
  Status failed_ HEADRACE_GUARDED_BY(mutex_);                   // an error: the job has failed
  std::int64_t failed_at_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;

  std::atomic<bool> ending_ = false;  // the destructor runs: do not repeat waits
  // Calls that end a wait for other nodes, and that were not handled yet.
  std::atomic<std::uint32_t> interrupts_ = 0;
  // Whether nodes send each other samples; session_ is there then.
  std::atomic<bool> exchanges_ = false;

  // Used by the job's thread; nodes_ and session_ are set once, before any lane connects.
  std::vector<std::unique_ptr<LaneSink>> sinks_;  // of the newest run, by lane
  std::shared_ptr<JobNodes> nodes_;               // null: other nodes are not asked
  std::unique_ptr<Session> session_;              // null: not opened
  std::uint32_t batches_max_ = 0;                 // of each lane, once it is open
  std::unique_ptr<ThreadExecutor> thread_;  // Last: runs what was posted before the rest goes.
};

}  // namespace headrace
