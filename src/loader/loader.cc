#include "loader/loader.h"

#include <utility>

#include "base/clock.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"

namespace headrace {

Result<std::unique_ptr<Loader>> Loader::Open(std::shared_ptr<const Index> index,
                                             LoaderOptions options) {
  options.job.ranks = 1;
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                            Session::Open(std::move(index), std::move(config)));
  return std::unique_ptr<Loader>(new Loader(std::move(session)));
}

Loader::Loader(std::unique_ptr<Session> session)
    : current_(std::make_unique<Current>()), session_(std::move(session)) {}

Loader::~Loader() {
  // The threads that the parts would wait for are the parent's; so is everything they hold.
  if (!session_->forked()) return;
  // NOLINTBEGIN(bugprone-unused-return-value): left to the parent on purpose
  (void)session_.release();
  (void)current_.release();
  // NOLINTEND(bugprone-unused-return-value)
}

const SessionFacts& Loader::facts() const { return session_->facts(); }
const Index& Loader::index() const { return session_->index(); }

Status Loader::Start(Position position) {
  return Begin(
      [&](BatchSink* sink, RunTurn turn) { return session_->Start(position, {sink}, turn); });
}

Status Loader::StartList(ListOrderOptions list) {
  return Begin(
      [&](BatchSink* sink, RunTurn turn) { return session_->StartList(list, sink, turn); });
}

Status Loader::Begin(
    const std::function<Result<std::shared_ptr<SessionRun>>(BatchSink*, RunTurn)>& start) {
  const RunTurn turn = session_->TakeTurn();
  auto queue = std::make_shared<BatchQueue>();
  Result<std::shared_ptr<SessionRun>> run = start(queue.get(), turn);
  if (!run.ok()) {
    static_cast<void>(session_->Stop(0, turn));
    if (!session_->forked()) static_cast<void>(Replace({.turn = turn}));
    return run.status();
  }
  if (Replace({.turn = turn, .queue = queue, .run = run.value()})) return Status();
  run.value()->Leave(0);  // Who came later ends it; it must not use the queue until then.
  return {StatusCode::kCancelled, "starting a run: another thread stopped it as it began"};
}

bool Loader::Replace(Current next) {
  Current before;
  {
    MutexLock lock(mutex_);
    if (current_->turn > next.turn) return false;
    before = std::exchange(*current_, std::move(next));
  }
  if (before.queue != nullptr) before.queue->Close();
  return true;
}

Loader::Current Loader::current() const {
  MutexLock lock(mutex_);
  return *current_;
}

Result<BatchQueue::Taken> Loader::Next(std::int64_t timeout_ns) {
  if (session_->forked()) return session_->reports().stats(0).status();
  const Current current = this->current();
  if (current.run == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "taking a batch: no run was started; iterate the loader");
  }
  if (!current.queue->ready()) {
    current.run->OnWaiting(0);
    // The consumer's thread does what it would wait for, as long as there is such work.
    const MonotonicClock clock;
    const std::int64_t begin_ns = clock.NowNanos();
    while (!current.queue->ready() && session_->Help()) {
      if (timeout_ns >= 0 && clock.NowNanos() - begin_ns >= timeout_ns) break;
    }
  }
  Result<BatchQueue::Taken> taken = current.queue->Take(timeout_ns);
  if (taken.ok() && taken.value().batch != nullptr) {
    current.run->OnTaken(0, *taken.value().batch, MonotonicClock().NowNanos());
  }
  return taken;
}

bool Loader::Stop(std::int64_t timeout_ns) {
  if (session_->forked()) return true;
  const RunTurn turn = session_->TakeTurn();
  static_cast<void>(session_->Stop(0, turn));  // After this the run writes nothing to the queue.
  static_cast<void>(Replace({.turn = turn}));
  return session_->Stop(timeout_ns, turn);
}

std::int64_t Loader::LeftOf(std::int64_t ns) const { return session_->LeftOf(ns); }

void Loader::Abandon() {
  if (session_->forked()) return;
  session_->Cancel();
  session_->Abandon();
}

Result<std::vector<PlannedRow>> Loader::Explain(Position position) const {
  return session_->reports().Explain(position, 0);
}

Result<std::vector<PlannedRow>> Loader::ExplainRows(std::span<const SampleId> samples) const {
  return session_->reports().ExplainRows(samples);
}

Result<LoaderStats> Loader::stats() const { return session_->reports().stats(0); }
std::vector<NamedTierStats> Loader::tier_stats() const { return session_->reports().tier_stats(); }
Result<std::vector<StepTime>> Loader::step_times() const {
  return session_->reports().step_times();
}
Result<std::vector<PreprocessModel::Row>> Loader::decode_times() const {
  return session_->reports().decode_times();
}

}  // namespace headrace
