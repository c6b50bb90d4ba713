#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/node_job.h"
#include "node/protocol/messages.h"
#include "node/server/lane_client.h"

namespace headrace {

class KeptTiers;

// A job of several ranks in their node process: the engine that they share, and who is there.
//
// Ranks come one by one. What the first asks for is what the job is; the others must ask for the
// same. A run is collective:
//   1. A rank that asks for a position leaves the run that it is in; the others go on in theirs.
//   2. When every rank that is still there has asked, for one position, a run begins there.
//   3. For different ones, no run begins, and each gets an error that names them all.
//   4. One that waited too long ends the wait of all if ranks are missing that never were there:
//      the error names these. A connected rank may take its time: stats name it.
// A rank that goes, whatever way, leaves its run and holds up nobody: the others go on without it.
// One that comes back while they do gets an error.
//
// Thread safety: every method may be called from any thread; Note() does its work there, all others
// have the job's own thread do it, in the order of the calls, and answer by message.
// Shutdown: the destructor finishes the calls made before it, ends the run, and waits for its reads
// as NodeJob does.
class HostedJob {
 public:
  // Asked with the bytes that the job is about to take, before it takes any: how many are then left
  // for what is kept for others.
  using Admit = std::function<Result<std::uint64_t>(std::uint64_t bytes)>;

  // Errors: ResourceExhausted  no thread
  static Result<std::unique_ptr<HostedJob>> Make(const OpenJob& first, Admit admit,
                                                 std::shared_ptr<KeptTiers> kept);
  ~HostedJob();
  HostedJob(const HostedJob&) = delete;
  HostedJob& operator=(const HostedJob&) = delete;

  // A rank joins. Answered by JobOpened, or Refused: then the job is nobody's, and all of its ranks
  // get the error. It takes part from the answer on, until Close().
  void Open(std::shared_ptr<LaneClient> client, OpenJob open);

  using Request = std::variant<StartRun, StartListRun, StopRun, AskStats, AskSteps, AskRows,
                               AskRowsOf, StillWaiting>;
  void Do(std::shared_ptr<LaneClient> client, Request request);
  void Note(const std::shared_ptr<LaneClient>& client, const BatchNote& note)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // It has gone. What its consumer holds stays with it.
  void Close(std::shared_ptr<LaneClient> client);

  // The error of a failed open, kept until every rank has received it.
  struct Failure {
    Status why;
    std::int64_t at_ns = 0;          // CLOCK_MONOTONIC
    std::set<std::uint32_t> untold;  // local ranks; never empty
  };
  [[nodiscard]] std::optional<Failure> failure() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Presence : std::uint8_t { kAwaited, kHere, kGone };

  // What a rank wants started.
  struct Asked {
    std::uint64_t start = 0;
    Position position;
    std::optional<ListOrderOptions> list;
  };

  struct Lane {
    Presence presence = Presence::kAwaited;
    std::shared_ptr<LaneClient> client;
    std::uint64_t start = 0;       // of the run that it is in, or asks for
    std::shared_ptr<NodeRun> run;  // null: it is in none
    std::optional<Asked> asked;    // it waits for the others
    std::optional<Position> next;  // the step after the last it took; nothing: it was in no run
    std::size_t tiers_in_trouble = 0;
    bool answered = false;
  };

  HostedJob(const OpenJob& first, Admit admit, std::shared_ptr<KeptTiers> kept)
      : first_(first), admit_(std::move(admit)), kept_(std::move(kept)) {
    lanes_.resize(first.local_ranks);
  }

  // On the job's thread.
  void Post(std::function<void()> work);
  Status OpenFirst(const OpenJob& open, int pid);
  Status Join(const std::shared_ptr<LaneClient>& client, const OpenJob& open);
  void DoOpen(const std::shared_ptr<LaneClient>& client, const OpenJob& open);
  void DoStart(std::uint32_t lane, Asked asked);
  void DoClose(const std::shared_ptr<LaneClient>& client);
  void DoStillWaiting(std::uint32_t lane, const StillWaiting& still)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Answer(const std::shared_ptr<LaneClient>& client, std::uint32_t lane, Request& request);
  void LeaveRun(std::uint32_t lane) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void BeginIfAllAsked() HEADRACE_LOCKS_EXCLUDED(mutex_);
  Status Begin(const Asked& asked);
  // Sends those that have asked the error: no run begins.
  void EndWait(const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // No run goes on or begins, and every connected rank gets the error.
  void FailAll(const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] std::optional<std::uint32_t> LaneOf(const LaneClient& client) const
      HEADRACE_LOCKS_REQUIRED(mutex_);
  // The lanes that others wait for to begin a run; empty: nobody waits.
  [[nodiscard]] std::vector<std::uint32_t> Awaited() const HEADRACE_LOCKS_REQUIRED(mutex_);
  // Why a run that this one asks for cannot begin: it came back, and the others go on in one that
  // began without it, or that it was lost from.
  [[nodiscard]] Status CheckNotAlone(std::uint32_t lane, const Position& position) const
      HEADRACE_LOCKS_REQUIRED(mutex_);
  // Why the ranks' positions cannot be one run's; OK if they can.
  [[nodiscard]] Status Compare() const HEADRACE_LOCKS_REQUIRED(mutex_);
  // Lower bound of the loop's position, given the batches taken: those before `next`.
  [[nodiscard]] Position LoopOf(const Position& next) const;
  // Why those that wait would wait for ever for one that took this batch; OK if they do not.
  [[nodiscard]] Status CheckGoesOn(std::uint32_t lane) const HEADRACE_LOCKS_REQUIRED(mutex_);
  void TellOfTiers(const std::shared_ptr<LaneClient>& client, std::uint32_t lane)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::string Named(std::uint32_t lane) const;

  const OpenJob first_;
  const Admit admit_;
  const std::shared_ptr<KeptTiers> kept_;  // null: tiers in memory end with the job

  mutable Mutex mutex_;
  std::vector<Lane> lanes_ HEADRACE_GUARDED_BY(mutex_);
  Status failed_ HEADRACE_GUARDED_BY(mutex_);  // an error: the job is nobody's
  std::int64_t failed_at_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;

  std::atomic<bool> ending_ = false;  // the destructor runs: do not retry waits

  // Of the job's thread; job_ is set once, before any lane is there.
  std::vector<std::unique_ptr<LaneSink>> sinks_;  // of the newest run
  std::unique_ptr<NodeJob> job_;                  // null: not opened
  std::uint32_t batches_ahead_ = 0;               // of each lane, once it is open
  std::unique_ptr<ThreadExecutor> thread_;  // Last: runs what was posted before the rest goes.
};

}  // namespace headrace
