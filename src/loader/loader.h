#pragma once

// loader/ turns options into batches. Its folders; each uses only the folders above it:
//   machine/   processors, memory, NUMA nodes, threads
//   ending/    ends runs within a time limit, even if storage does not answer
//   config/    options -> a resolved configuration; opens nothing
//   planning/  computes what a configuration will read; reads nothing
//   session/   owns threads, memory, stores and tiers; runs the engine on them
// Loader, below, is the session of one rank. C++ programs, the Python module and the node process
// start here.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/batch/batch.h"
#include "index/index.h"
#include "loader/batch_queue.h"
#include "loader/batch_source.h"
#include "loader/config/loader_options.h"
#include "observe/loader_stats.h"
#include "observe/step_times.h"
#include "plan/exact_order.h"
#include "plan/order.h"

namespace headrace {

class Session;
class SessionRun;
enum class RunTurn : std::uint64_t;

// Loads batches of one rank, in this process.
//
// Thread safety, ownership, shutdown: as for any BatchSource.
class Loader final : public BatchSource {
 public:
  // Errors: InvalidArgument     invalid options, which the message names; a budget below one batch
  //         FailedPrecondition  io_uring was requested and cannot be used; a tier's folder
  //                             is in use
  //         any of reading      a store of no storage, which reads some samples
  static Result<std::unique_ptr<Loader>> Open(std::shared_ptr<const Index> index,
                                              LoaderOptions options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  [[nodiscard]] const SessionFacts& facts() const override;
  [[nodiscard]] const Index& index() const;

  Status Start(Position position) override;
  Status StartList(ListOrderOptions list) override;
  // The calling thread runs decode tasks instead of waiting idle.
  Result<BatchQueue::Taken> Next(std::int64_t timeout_ns) override;
  bool Stop(std::int64_t timeout_ns = -1) override;
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const override;
  void Abandon() override;

  Result<std::vector<PlannedRow>> Explain(Position position) const override;
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const override;
  [[nodiscard]] Result<LoaderStats> stats() const override;
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const override;
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const override;
  [[nodiscard]] Result<std::vector<PreprocessModel::Row>> decode_times() const override;

 private:
  // A run, and the queue that it shares with its consumer; null: there is none.
  struct Current {
    RunTurn turn{};  // of the Start(), StartList() or Stop() that set it
    std::shared_ptr<BatchQueue> queue;
    std::shared_ptr<SessionRun> run;
  };

  explicit Loader(std::unique_ptr<Session> session);
  Status Begin(const std::function<Result<std::shared_ptr<SessionRun>>(BatchSink*, RunTurn)>& start)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Makes `next` the current run and wakes the threads that wait for the previous one, unless the
  // current run is newer. Returns whether it did. The previous run must not write to its queue any
  // more.
  bool Replace(Current next) HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] Current current() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<Current> current_ HEADRACE_GUARDED_BY(mutex_);  // never null
  std::unique_ptr<Session> session_;  // Last: it stops using the queue before that goes.
};

}  // namespace headrace
