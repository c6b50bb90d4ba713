#include "workers/transform_queue.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace headrace {

using Phase = BatchPhase;

void TransformQueue::Add(std::shared_ptr<Batch> batch) {
  const std::uint64_t rows = batch->samples.size();
  std::optional<std::uint64_t> task_rows;
  if (!form_.whole_batches && !whole_) task_rows = tasks_.TaskRows(rows);
  works_.push_back(std::make_shared<BatchWork>(std::move(batch), task_rows));
  if (plain_.has_value() && form_.is_uniform()) works_.back()->Expect(plain_->ForRows(rows));
  Advance();
}

void TransformQueue::OnReply(std::size_t worker, WorkerReply reply) {
  if (reply.kind == ReplyMessage::kReady) {
    tasks_.SetReady(worker, reply.threads);
    return Pump();
  }
  if (reply.kind == ReplyMessage::kFailed) {
    return Lose(worker, {.kind = TransformFailure::Kind::kStart,
                         .text = std::move(reply.text),
                         .pickle = std::move(reply.pickle)});
  }
  const std::optional<WorkerTasks::Held> held = tasks_.Answer(worker, reply.task);
  if (!held.has_value() || !held->work->Awaits(*held->task, reply.kind)) {
    return Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost,
                         .text = "it answered what it was not asked"});
  }
  const auto& [work, task] = *held;
  const bool buffers = reply.kind == ReplyMessage::kShaped;
  if (buffers && reply.shapes.rows != (task->whole ? 1 : task->rows)) {
    return Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost,
                         .text = "it answered for other rows than it was asked for"});
  }
  if (reply.busy_ns > 0) {
    tasks_.Learn(std::max<std::uint64_t>(task->rows, 1), reply.busy_ns);
    ++stats_.tasks;
    stats_.rows += task->rows;
    stats_.busy_ns += reply.busy_ns;
    stats_.ran_ns += reply.ran_ns;
  }
  const bool round_ends = work->OnReply(*task, std::move(reply));
  if (!buffers) {
    tasks_.Release(task->number);
  } else if (work->phase() == Phase::kDropped) {
    ForgetBuffered(*work);
  }
  if (round_ends) Settle(*work);
  Pump();
}

void TransformQueue::Settle(BatchWork& work) {
  switch (work.Settle(form_.ragged)) {
    case Phase::kWaiting:
      return GiveMemory();
    case Phase::kComputing:
      whole_ = true;
      ForgetBuffered(work);
      return work.ComputeWhole();
    default:
      return Finish(work);
  }
}

void TransformQueue::Lose(std::size_t worker, TransformFailure failure) {
  const bool is_first = !loss().has_value();
  sink_.Close(worker);
  tasks_.Lose(worker, std::move(failure));
  if (is_first) on_change_();
}

void TransformQueue::Advance() {
  GiveMemory();
  Pump();  // Batches that have just got memory may have tasks to send.
}

void TransformQueue::SetAwaited(bool awaited) {
  awaited_ = awaited;
  if (awaited) Advance();
}

std::deque<TransformQueue::Work>::const_iterator TransformQueue::Ready() const {
  const auto end = form_.in_order && !works_.empty() ? works_.begin() + 1 : works_.end();
  const auto ready = std::find_if(
      works_.begin(), end, [](const Work& work) { return work->phase() == Phase::kComplete; });
  return ready == end ? works_.end() : ready;
}

TransformTaken TransformQueue::Take() {
  const auto ready = Ready();
  TransformTaken taken = (*ready)->Take();
  works_.erase(ready);
  on_change_();
  if (taken.batch != nullptr) {
    ++stats_.batches;
    stats_.samples += taken.batch->samples.size();
  }
  return taken;
}

void TransformQueue::Clear() {
  for (const Work& work : works_) {
    ForgetBuffered(*work);
    work->Drop();
  }
  works_.clear();
}

TransformQueue::Stats TransformQueue::stats() const {
  Stats stats = stats_;
  stats.threads = tasks_.threads();
  stats.memory = memory_.stats();
  return stats;
}

void TransformQueue::GiveMemory() {
  for (const Work& work : works_) {
    // It is not known yet how much it needs: later ones wait.
    if (work->phase() == Phase::kComputing && !work->has_memory() && memory_.is_limited()) return;
    if (work->phase() != Phase::kWaiting) continue;
    const Result<bool> given =
        memory_.Give(work->out(), /*beyond=*/awaited_ && work == works_.front());
    if (!given.ok()) {
      work->Fail(std::string(given.status().message()), 0);
      Finish(*work);
    } else if (given.value()) {
      Write(*work);
      on_change_();
    } else {
      return;
    }
  }
}

void TransformQueue::Pump() {
  std::optional<std::size_t> worker = tasks_.IdleWorker();
  for (auto work = works_.begin(); worker.has_value() && work != works_.end();) {
    BatchWork::Task* const task = (*work)->NextTask();
    if (task == nullptr) {
      ++work;
      continue;
    }
    tasks_.Assign(*worker, {*work, task});
    OnSent(*worker, sink_.Compute(*worker,
                                  {.number = task->number,
                                   .first = task->first,
                                   .rows = task->rows,
                                   .whole = task->whole},
                                  (*work)->in(), (*work)->out(),
                                  /*direct=*/(*work)->has_memory()));
    worker = tasks_.IdleWorker();
  }
}

void TransformQueue::Write(BatchWork& work) {
  const std::span<BatchWork::Task> tasks = work.OnMemory();
  const bool of_rows = !tasks.empty() && !tasks[0].whole;
  if (of_rows && work.out().layout.is_plain()) plain_ = work.out().layout;
  for (const BatchWork::Task& task : tasks) {
    OnSent(task.worker,
           sink_.Write(task.worker, {.number = task.number, .first = task.first, .rows = task.rows},
                       work.out()));
  }
}

void TransformQueue::OnSent(std::size_t worker, const Status& sent) {
  // Of a worker that is gone its receiver says more.
  if (sent.ok() || sent.code() == StatusCode::kUnavailable) return;
  Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost, .text = std::string(sent.message())});
}

void TransformQueue::Finish(BatchWork& work) {
  ForgetBuffered(work);
  work.Finish();
  on_change_();
}

void TransformQueue::ForgetBuffered(BatchWork& work) {
  for (const BatchWork::Task* task : work.TakeBuffered()) {
    OnSent(task->worker, sink_.Forget(task->worker, task->number));
    tasks_.Release(task->number);
  }
}

}  // namespace headrace
