#include "headrace/loader.h"

#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "loader/batch_queue.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"

// loader/ turns options into batches. Its folders; each uses only the folders above it:
//   machine/   processors, memory, NUMA nodes, threads
//   ending/    ends runs within a time limit, even if storage does not answer
//   config/    options -> a resolved configuration; opens nothing
//   planning/  computes what a configuration will read; reads nothing
//   session/   owns threads, memory, stores and tiers; runs the engine on them
// Loader is the session of one rank. C++ programs, the Python module and the node process start
// here.

namespace headrace {

struct Loader::Parts {
  // A run, and the queue that it shares with its consumer; null: there is none.
  struct Current {
    RunTurn turn{};  // of the Start(), StartList() or Stop() that set it
    std::shared_ptr<BatchQueue> queue;
    std::shared_ptr<SessionRun> run;
  };

  explicit Parts(std::unique_ptr<Session> of) : session(std::move(of)) {}

  Status Begin(const std::function<Result<std::shared_ptr<SessionRun>>(BatchSink*, RunTurn)>& start)
      HEADRACE_LOCKS_EXCLUDED(mutex);
  // Makes `next` the current run and wakes the threads that wait for the previous one, unless the
  // current run is newer. Returns whether it did. The previous run must not write to its queue any
  // more.
  bool Replace(Current next) HEADRACE_LOCKS_EXCLUDED(mutex);
  [[nodiscard]] Current Now() const HEADRACE_LOCKS_EXCLUDED(mutex);

  mutable Mutex mutex;
  Current current HEADRACE_GUARDED_BY(mutex);
  const std::unique_ptr<Session> session;  // Last: it stops using the queue before that goes.
};

Result<std::unique_ptr<Loader>> Loader::Open(std::shared_ptr<const Index> index,
                                             LoaderOptions options) {
  if (options.nodes.has_value()) {
    return Status(StatusCode::kInvalidArgument,
                  "opening a loader with LoaderOptions::nodes: only a node process (hr.Node in "
                  "Python) asks other nodes; leave it out");
  }
  options.job.ranks = 1;
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                            Session::Open(std::move(index), std::move(config)));
  return std::unique_ptr<Loader>(new Loader(std::make_unique<Parts>(std::move(session))));
}

Loader::Loader(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Loader::~Loader() {
  // The threads that the parts would wait for are the parent's; so is everything they hold.
  // NOLINTNEXTLINE(bugprone-unused-return-value): left to the parent on purpose
  if (parts_->session->forked()) (void)parts_.release();
}

const SessionFacts& Loader::facts() const { return parts_->session->facts(); }
const Index& Loader::index() const { return parts_->session->index(); }

Status Loader::Start(Position position) {
  return parts_->Begin([&](BatchSink* sink, RunTurn turn) {
    return parts_->session->Start(position, {sink}, turn);
  });
}

Status Loader::StartList(ListOrderOptions list) {
  return parts_->Begin(
      [&](BatchSink* sink, RunTurn turn) { return parts_->session->StartList(list, sink, turn); });
}

Status Loader::Parts::Begin(
    const std::function<Result<std::shared_ptr<SessionRun>>(BatchSink*, RunTurn)>& start) {
  const RunTurn turn = session->TakeTurn();
  auto queue = std::make_shared<BatchQueue>();
  Result<std::shared_ptr<SessionRun>> run = start(queue.get(), turn);
  if (!run.ok()) {
    static_cast<void>(session->Stop(0, turn));
    if (!session->forked()) static_cast<void>(Replace({.turn = turn}));
    return run.status();
  }
  if (Replace({.turn = turn, .queue = queue, .run = run.value()})) return Status();
  run.value()->Leave(0);  // Who came later ends it; it must not use the queue until then.
  return {StatusCode::kCancelled, "starting a run: another thread stopped it as it began"};
}

bool Loader::Parts::Replace(Current next) {
  Current before;
  {
    MutexLock lock(mutex);
    if (current.turn > next.turn) return false;
    before = std::exchange(current, std::move(next));
  }
  if (before.queue != nullptr) before.queue->Close();
  return true;
}

Loader::Parts::Current Loader::Parts::Now() const {
  MutexLock lock(mutex);
  return current;
}

Result<TakenBatch> Loader::Next(std::int64_t timeout_ns) {
  if (parts_->session->forked()) return parts_->session->reports().stats(0).status();
  const Parts::Current current = parts_->Now();
  if (current.run == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "taking a batch: no run was started; iterate the loader");
  }
  if (!current.queue->ready()) {
    current.run->OnWaiting(0);
    // The consumer's thread does what it would wait for, as long as there is such work.
    const MonotonicClock clock;
    const std::int64_t begin_ns = clock.NowNanos();
    while (!current.queue->ready() && parts_->session->Help()) {
      if (timeout_ns >= 0 && clock.NowNanos() - begin_ns >= timeout_ns) break;
    }
  }
  Result<TakenBatch> taken = current.queue->Take(timeout_ns);
  if (taken.ok() && taken.value().batch != nullptr) {
    current.run->OnTaken(0, *taken.value().batch, MonotonicClock().NowNanos());
  }
  return taken;
}

bool Loader::Stop(std::int64_t timeout_ns) {
  if (parts_->session->forked()) return true;
  const RunTurn turn = parts_->session->TakeTurn();
  // After this the run writes nothing to the queue.
  static_cast<void>(parts_->session->Stop(0, turn));
  static_cast<void>(parts_->Replace({.turn = turn}));
  return parts_->session->Stop(timeout_ns, turn);
}

std::int64_t Loader::LeftOf(std::int64_t ns) const { return parts_->session->LeftOf(ns); }

void Loader::Abandon() {
  if (parts_->session->forked()) return;
  parts_->session->Cancel();
  parts_->session->Abandon();
}

Result<std::vector<PlannedRow>> Loader::Explain(Position position) const {
  return parts_->session->reports().Explain(position, 0);
}

Result<std::vector<PlannedRow>> Loader::ExplainRows(std::span<const SampleId> samples) const {
  return parts_->session->reports().ExplainRows(samples);
}

Result<LoaderStats> Loader::stats() const { return parts_->session->reports().stats(0); }
std::vector<NamedTierStats> Loader::tier_stats() const {
  return parts_->session->reports().tier_stats();
}
Result<std::vector<StepTime>> Loader::step_times() const {
  return parts_->session->reports().step_times();
}
Result<std::vector<PreprocessRow>> Loader::decode_times() const {
  return parts_->session->reports().decode_times();
}

}  // namespace headrace
