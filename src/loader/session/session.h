#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/loader.h"
#include "headrace/status.h"
#include "loader/config/loader_config.h"
#include "loader/ending/run_lifecycle.h"
#include "loader/machine/numa.h"
#include "loader/session/service_memory.h"
#include "plan/exact_order.h"
#include "plan/order.h"

namespace headrace {

class BatchSink;
class OtherNodes;
class SessionReports;

// How long a session's destructor waits for reads of storage, and then for the rest of its
// shutdown: a tier must be on the disk before another process may open its folder.
constexpr std::int64_t kCloseNs = 1'000'000'000;
constexpr std::int64_t kFlushNs = 10'000'000'000;

// Receives events from the consumers of one run's lanes.
//
// Thread safety: every method may be called from any thread. After the run has ended, methods do
// nothing.
class SessionRun {
 public:
  virtual ~SessionRun() = default;

  // The lane's consumer took a batch from its sink at `taken_ns` (CLOCK_MONOTONIC).
  virtual void OnTaken(std::uint32_t lane, const Batch& batch, std::int64_t taken_ns) = 0;
  // The consumer found its sink empty and waits.
  virtual void OnWaiting(std::uint32_t lane) = 0;
  // The consumer is gone. Its sink is not called after this returns. The other lanes continue.
  virtual void Leave(std::uint32_t lane) = 0;
};

// A job's part on one node: one engine for the ranks [rank, rank + ranks) of options.job, its
// *lanes*, and everything that they share: storage, tiers, plan, memory, threads. A *run* is one
// pass over the plan: it starts at a position and continues, epoch after epoch, until it ends,
// fails, is stopped, or another run starts.
//
// Capacities in options (memory, tiers, threads) are for one rank; the node has `ranks` times as
// much.
//
// Thread safety: every method may be called from any thread.
// Ownership: batches handed out may outlive the session; sinks must outlive the run that uses them.
// Shutdown: the destructor stops the run. It waits for its reads up to kCloseNs since the run was
// first asked to stop, and up to kFlushNs for the writes of its tiers. If storage does not answer
// in time, the process's reaper (loader/ending/) holds the session's threads, memory and tier
// folders until it does. Before all that, it waits while owes(). A forked child must not destroy
// the session (see forked()); in the child every method returns FailedPrecondition.
class Session {
 public:
  // `service`: without its tiers, tiers in memory end with this session. With several lanes on
  // several NUMA nodes, the threads, staging and batch memory of a lane are on its NUMA node.
  // `nodes`: the other nodes of the job, which exchange samples of their tiers with this one; null:
  // they are not asked.
  //
  // Errors: those of opening the schedule, the tiers and the store of the configuration
  static Result<std::unique_ptr<Session>> Open(std::shared_ptr<const Index> index,
                                               LoaderConfig config, ServiceMemory service = {},
                                               const NumaRequest& numa = NumaRequest(),
                                               std::shared_ptr<OtherNodes> nodes = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const LoaderConfig& config() const;
  [[nodiscard]] const SessionFacts& facts() const;
  [[nodiscard]] const Index& index() const;
  // What it reports, in any state.
  [[nodiscard]] const SessionReports& reports() const;
  // True in a forked child of the process that opened the session: its threads run in the parent
  // only.
  [[nodiscard]] bool forked() const;

  // Takes a turn for one call of Start() or StartList(), or for calls of Stop() that belong
  // together: see RunLifecycle. A caller with one thread needs no turn.
  [[nodiscard]] RunTurn TakeTurn();

  // Ends the run, if there is one, waits for its reads, and starts a run of the session's own
  // order. `sinks`: one for each lane. The previous run delivers nothing more to its sinks.
  //
  // Errors: Cancelled  Cancel() was called before the run started, or Stop() or Start() took a
  //                    newer turn
  //         those of OrderFactory::Make, of following a schedule, and of OtherNodes::Agree
  Result<std::shared_ptr<SessionRun>> Start(Position position, const std::vector<BatchSink*>& sinks,
                                            std::optional<RunTurn> turn = std::nullopt);

  // The same with an order that the caller decided: one epoch, one lane. Only if the session's own
  // order is `exact`.
  //
  // Errors: OutOfRange       an id that the dataset does not have
  //         InvalidArgument  several lanes; batch ends that do not ascend to the number of ids, an
  //                          epoch of 2^24 up
  Result<std::shared_ptr<SessionRun>> StartList(const ListOrderOptions& list, BatchSink* sink,
                                                std::optional<RunTurn> turn = std::nullopt);

  // Ends the run, which delivers nothing more to its sinks, and waits up to `timeout_ns` for its
  // reads (negative: no limit, but Cancel() ends the wait). Returns false if some reads are still
  // in flight: Start() would wait for them. If nodes send each other samples, a run continues
  // while other nodes need samples that only this node has, up to OtherNodes::patience_ns(); a
  // later call then begins its end. A run that is still being planned does not start; false then
  // means that planning still runs. Does nothing to a run with a newer turn.
  bool Stop(std::int64_t timeout_ns = -1, std::optional<RunTurn> turn = std::nullopt);

  // Whether other nodes may still need samples of the run that only this node has, so that Stop()
  // and the destructor wait for them. Only for a run that its consumers have left.
  [[nodiscard]] bool owes() const;

  // Returns `ns` minus the time since the run was first asked to end; `ns` if nobody asked, or the
  // run has ended. So several waits for the same end share one deadline.
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const;

  // No run starts any more: waiting and later calls of Start() return Cancelled.
  void Cancel();

  // From now on the destructor does not wait for reads.
  void Abandon() { impatient_ = true; }

  // Runs one waiting task of the run on the calling thread; returns false if there is none.
  bool Help();

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::atomic<bool> impatient_ = false;
};

}  // namespace headrace
