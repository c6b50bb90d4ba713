#pragma once

// loader/ turns options into batches. Its folders, each of which uses only those before it:
//   machine/   processors, memory, NUMA nodes, threads
//   ending/    ends what storage may hold up
//   config/    options -> a resolved configuration; opens nothing
//   planning/  what a configuration will read, without reading it
//   session/   threads, memory, stores and tiers, and the engine that runs on them
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
#include "plan/order_factory.h"
#include "plan/quality/labels.h"

namespace headrace {

class NodeJob;
class NodeRun;
enum class RunTurn : std::uint64_t;

// Loads batches of one rank, in this process.
//
// Thread safety, ownership, shutdown: as for any BatchSource.
class Loader final : public BatchSource {
 public:
  // Errors: InvalidArgument     options that cannot be, named; a budget below one batch
  //         FailedPrecondition  io_uring was asked for and cannot be used; a tier's folder is
  //                             somebody else's
  //         any of reading      a store of no storage, which reads some samples
  static Result<std::unique_ptr<Loader>> Open(std::shared_ptr<const Index> index,
                                              LoaderOptions options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  [[nodiscard]] std::span<const BatchField> schema() const override;
  [[nodiscard]] std::uint64_t steps_per_epoch() const override;
  [[nodiscard]] OrderParameters order_parameters() const override;
  [[nodiscard]] OrderParameters order_origins() const override;
  [[nodiscard]] const std::optional<ExpectedInflation>& expected_inflation() const override;
  [[nodiscard]] const Index& index() const;

  Status Start(Position position) override;
  Status StartList(ListOrderOptions list) override;
  // The thread that calls does decode tasks while it would wait.
  Result<BatchQueue::Taken> Next(std::int64_t timeout_ns) override;
  bool Stop(std::int64_t timeout_ns = -1) override;
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const override;
  void Abandon() override;

  Result<std::vector<PlannedRow>> Explain(Position position) const override;
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const override;
  [[nodiscard]] Result<LoaderStats> stats() const override;
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const override;
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const override;
  [[nodiscard]] Result<std::vector<PreprocessModel::Row>> learned() const override;

 private:
  // A run, and the queue that it shares with its consumer; null: there is none.
  struct Current {
    RunTurn turn{};  // of the Start(), StartList() or Stop() that said so
    std::shared_ptr<BatchQueue> queue;
    std::shared_ptr<NodeRun> run;
  };

  explicit Loader(std::unique_ptr<NodeJob> job);
  Status Begin(const std::function<Result<std::shared_ptr<NodeRun>>(BatchSink*, RunTurn)>& start)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Goes on with `next` unless what is there is newer, and wakes who waits for the run before.
  // Returns whether it did. That run must not write to its queue any more.
  bool Replace(Current next) HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] Current current() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<Current> current_ HEADRACE_GUARDED_BY(mutex_);  // never null
  std::unique_ptr<NodeJob> job_;  // Last: it stops using the queue before that goes.
};

}  // namespace headrace
