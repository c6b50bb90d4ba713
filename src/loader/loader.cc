#include "loader/loader.h"

#include <utility>

#include "base/clock.h"
#include "loader/session/node_job.h"

namespace headrace {

Result<std::unique_ptr<Loader>> Loader::Open(std::shared_ptr<const Index> index,
                                             LoaderOptions options) {
  options.job.ranks = 1;
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<NodeJob> job,
                            NodeJob::Open(std::move(index), std::move(options)));
  return std::unique_ptr<Loader>(new Loader(std::move(job)));
}

Loader::Loader(std::unique_ptr<NodeJob> job)
    : current_(std::make_unique<Current>()), job_(std::move(job)) {}

Loader::~Loader() {
  // The threads that the parts would wait for are the parent's; so is everything they hold.
  if (!job_->forked()) return;
  // NOLINTBEGIN(bugprone-unused-return-value): left to the parent on purpose
  (void)job_.release();
  (void)current_.release();
  // NOLINTEND(bugprone-unused-return-value)
}

std::span<const BatchField> Loader::schema() const { return job_->schema(); }
std::uint64_t Loader::steps_per_epoch() const { return job_->steps_per_epoch(); }
const Index& Loader::index() const { return job_->index(); }
OrderParameters Loader::order_parameters() const { return job_->order_parameters(); }
OrderParameters Loader::order_origins() const { return job_->order_origins(); }
const std::optional<ExpectedInflation>& Loader::expected_inflation() const {
  return job_->expected_inflation();
}

Status Loader::Start(Position position) {
  return Begin([&](BatchSink* sink, RunTurn turn) { return job_->Start(position, {sink}, turn); });
}

Status Loader::StartList(ListOrderOptions list) {
  return Begin([&](BatchSink* sink, RunTurn turn) { return job_->StartList(list, sink, turn); });
}

Status Loader::Begin(
    const std::function<Result<std::shared_ptr<NodeRun>>(BatchSink*, RunTurn)>& start) {
  const RunTurn turn = job_->TakeTurn();
  auto queue = std::make_shared<BatchQueue>();
  Result<std::shared_ptr<NodeRun>> run = start(queue.get(), turn);
  if (!run.ok()) {
    static_cast<void>(job_->Stop(0, turn));
    if (!job_->forked()) static_cast<void>(Replace({.turn = turn}));
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
  if (job_->forked()) return job_->stats(0).status();
  const Current current = this->current();
  if (current.run == nullptr) {
    return Status(StatusCode::kFailedPrecondition, "no run was started");
  }
  if (!current.queue->ready()) {
    current.run->OnWaiting(0);
    // The consumer's thread does what it would wait for, as long as there is such work.
    const MonotonicClock clock;
    const std::int64_t begin_ns = clock.NowNanos();
    while (!current.queue->ready() && job_->Help()) {
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
  if (job_->forked()) return true;
  const RunTurn turn = job_->TakeTurn();
  static_cast<void>(job_->Stop(0, turn));  // After this the run writes nothing to the queue.
  static_cast<void>(Replace({.turn = turn}));
  return job_->Stop(timeout_ns, turn);
}

std::int64_t Loader::LeftOf(std::int64_t ns) const { return job_->LeftOf(ns); }

void Loader::Abandon() {
  if (job_->forked()) return;
  job_->Cancel();
  job_->Abandon();
}

Result<std::vector<PlannedRow>> Loader::Explain(Position position) const {
  return job_->Explain(position, 0);
}

Result<std::vector<PlannedRow>> Loader::ExplainRows(std::span<const SampleId> samples) const {
  return job_->ExplainRows(samples);
}

Result<LoaderStats> Loader::stats() const { return job_->stats(0); }
std::vector<NamedTierStats> Loader::tier_stats() const { return job_->tier_stats(); }
Result<std::vector<StepTime>> Loader::step_times() const { return job_->step_times(); }
Result<std::vector<PreprocessModel::Row>> Loader::learned() const { return job_->learned(); }

}  // namespace headrace
