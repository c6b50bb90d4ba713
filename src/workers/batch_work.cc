#include "workers/batch_work.h"

#include <algorithm>
#include <utility>

namespace headrace {

using Phase = BatchPhase;

BatchWork::BatchWork(std::shared_ptr<Batch> in, std::optional<std::uint64_t> task_rows)
    : in_(std::move(in)),
      out_(std::make_unique<TransformedBatch>(TransformedBatch{.epoch = in_->epoch,
                                                               .step = in_->step,
                                                               .ends_epoch = in_->ends_epoch,
                                                               .beyond_budget = in_->beyond_budget,
                                                               .samples = in_->samples})) {
  Divide(task_rows);
}

void BatchWork::Divide(std::optional<std::uint64_t> task_rows) {
  const std::uint64_t rows = out_->samples.size();
  tasks_.clear();
  if (!task_rows.has_value() || rows == 0) {
    tasks_.push_back({.rows = rows, .whole = true});
  } else {
    for (std::uint64_t first = 0; first < rows; first += *task_rows) {
      tasks_.push_back({.first = first, .rows = std::min(*task_rows, rows - first)});
    }
  }
  sent_ = 0;
  open_ = tasks_.size();
}

void BatchWork::ComputeWhole() {
  out_->memory.Reset();
  out_->layout = {};
  unlike_ = false;
  phase_ = Phase::kComputing;
  Divide(std::nullopt);
}

void BatchWork::Expect(OutputLayout layout) {
  if (tasks_[0].whole) return;
  out_->layout = std::move(layout);
  phase_ = Phase::kWaiting;
}

BatchWork::Task* BatchWork::NextTask() {
  if (phase_ != Phase::kComputing || sent_ == tasks_.size()) return nullptr;
  return &tasks_[sent_++];
}

std::span<BatchWork::Task> BatchWork::OnMemory() {
  phase_ = sent_ == 0 ? Phase::kComputing : Phase::kWriting;
  if (phase_ == Phase::kComputing) return {};
  open_ = tasks_.size();
  return tasks_;
}

bool BatchWork::Awaits(const Task& task, ReplyMessage kind) const {
  if (!task.buffered.has_value()) return kind != ReplyMessage::kDone || has_memory();
  // TakeBuffered() leaves a dropped batch what is being written.
  const bool writes = phase_ == Phase::kWriting || phase_ == Phase::kDropped;
  return (kind == ReplyMessage::kDone || kind == ReplyMessage::kError) && writes;
}

bool BatchWork::OnReply(Task& task, WorkerReply reply) {
  if (reply.kind == ReplyMessage::kShaped) {
    task.buffered = std::move(reply.shapes);
    task.buffered->first_slot = task.first;
  } else {
    task.written = reply.kind == ReplyMessage::kDone;
    task.objects = std::move(reply.objects);
    task.buffered.reset();
    unlike_ = unlike_ || reply.kind == ReplyMessage::kUnlike;
  }
  if (reply.kind == ReplyMessage::kError &&
      (!failure_.has_value() || failure_->tasks[0].first_slot > reply.slot)) {
    const std::uint64_t slot =
        std::clamp(reply.slot, task.first, task.first + std::max<std::uint64_t>(task.rows, 1) - 1);
    failure_ = {.kind = TransformFailure::Kind::kTransform,
                .worker = task.worker,
                .text = std::move(reply.text),
                .pickle = std::move(reply.pickle),
                .tasks = {SampleAt(slot)}};
  }
  return --open_ == 0;
}

BatchPhase BatchWork::Settle(RaggedRows ragged) {
  const bool all_written = std::ranges::all_of(tasks_, &Task::written);
  if (all_written || phase_ == Phase::kDropped || failure_.has_value()) return Phase::kComplete;
  const bool may_compute_again = ragged == RaggedRows::kWhole && !tasks_[0].whole;
  if (unlike_ && may_compute_again) return Phase::kComputing;
  if (unlike_) {
    Fail("a worker answered that its rows are unlike, where nothing else can be made of them", 0);
    return Phase::kComplete;
  }
  std::vector<TaskShapes> shapes;
  for (const Task& task : tasks_) {
    shapes.push_back(task.written ? ShapesOf(out_->layout, task.first, task.rows) : *task.buffered);
  }
  ShapeMismatch mismatch;
  if (!MakeOutputLayout(shapes, ragged, out_->layout, mismatch)) {
    if (may_compute_again) return Phase::kComputing;
    Fail(std::move(mismatch.text), mismatch.slot);
  } else if (std::ranges::any_of(tasks_, &Task::written)) {
    if (may_compute_again) return Phase::kComputing;
    Fail("workers do not agree on how it is written", 0);
  } else {
    out_->memory.Reset();  // Its size was a guess that proved wrong.
    phase_ = Phase::kWaiting;
    return phase_;
  }
  return Phase::kComplete;
}

TaskSamples BatchWork::SampleAt(std::uint64_t slot) const {
  return out_->SamplesAt(slot, out_->samples.empty() ? 0 : 1);
}

void BatchWork::Fail(std::string text, std::uint64_t slot) {
  failure_ = {
      .kind = TransformFailure::Kind::kShape, .text = std::move(text), .tasks = {SampleAt(slot)}};
}

std::vector<BatchWork::Task*> BatchWork::TakeBuffered() {
  std::vector<Task*> buffered;
  if (phase_ == Phase::kWriting) return buffered;
  for (Task& task : tasks_) {
    if (!task.buffered.has_value()) continue;
    task.buffered.reset();
    buffered.push_back(&task);
  }
  return buffered;
}

void BatchWork::Finish() {
  for (Task& task : tasks_) out_->objects.push_back(std::move(task.objects));
  in_.reset();  // Not before: results may be views of what came in.
  phase_ = Phase::kComplete;
}

TransformTaken BatchWork::Take() {
  if (failure_.has_value()) return {.failure = std::move(failure_)};
  return {.batch = std::move(out_)};
}

}  // namespace headrace
