#include "workers/worker_pool.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// Tasks that a worker has at a time: it works on one, the next lies in its socket.
constexpr std::size_t kTasksAWorker = 2;
// The batch that a training loop works on, and the one before it.
constexpr std::uint64_t kBatchesOfConsumer = 2;
// Longest single wait in the source. Halt() waits at most this long if it cannot wake the source.
constexpr std::int64_t kFeedSliceNs = 50 * kNsPerMs;
TaskSamples SamplesOf(const TransformedBatch& batch, std::uint64_t first, std::uint64_t rows) {
  const auto begin = batch.samples.begin() + static_cast<std::ptrdiff_t>(first);
  return {.epoch = batch.epoch,
          .step = batch.step,
          .first_slot = first,
          .samples = {begin, begin + static_cast<std::ptrdiff_t>(rows)}};
}

std::uint64_t DivideUp(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }

}  // namespace

Result<std::unique_ptr<WorkerPool>> WorkerPool::Make(WorkerPoolOptions options,
                                                     Connections workers) {
  HEADRACE_CHECK(!workers.empty() && options.batches_max > 0);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) {
    return ResourceExhausted("making a pool of {} workers: eventfd: {}", workers.size(),
                             std::generic_category().message(errno));
  }
  return std::unique_ptr<WorkerPool>(
      new WorkerPool(std::move(options), std::move(workers), std::move(wake)));
}

WorkerPool::WorkerPool(WorkerPoolOptions options, Connections connections, UniqueFd wake)
    : options_(std::move(options)),
      connections_(std::move(connections)),
      wake_(std::move(wake)),
      workers_(connections_.size()),
      sender_(options_.schema, connections_),
      feeder_([this] { Feed(); }),
      hearer_([this] { Hear(); }) {}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    HEADRACE_CHECK(!feeding_ && !inside_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  Wake();
  feeder_.join();
  hearer_.join();
  if (memory_ != nullptr) memory_->SetReleaseHook(nullptr);
}

// Wakes Hear(). May be called on any thread, with any lock held.
void WorkerPool::Wake() {
  const std::uint64_t one = 1;
  HEADRACE_CHECK(write(wake_.get(), &one, sizeof one) == sizeof one || errno == EAGAIN);
}

void WorkerPool::Begin(Source source) {
  MutexLock lock(mutex_);
  HEADRACE_CHECK(!feeding_ && works_.empty());
  source_ = std::move(source);
  end_.reset();
  feeding_ = true;
  changed_.NotifyAll();
}

void WorkerPool::Halt(const std::function<void()>& stop_source) {
  {
    MutexLock lock(mutex_);
    feeding_ = false;
    for (const std::shared_ptr<Work>& work : works_) {
      work->dropped = true;
      for (Task& task : work->tasks) {
        if (task.kept.has_value() && !task.writing) SendForget(task);
      }
    }
    works_.clear();
    end_ = Status(StatusCode::kCancelled, "the run was stopped");
    changed_.NotifyAll();
  }
  stop_source();
  MutexLock lock(mutex_);
  while (inside_ && !feeding_) changed_.Wait(mutex_);
  if (!feeding_) source_ = nullptr;  // Else Begin() was called meanwhile: the source is a new one.
}

Result<WorkerPool::Taken> WorkerPool::Next(std::int64_t timeout_ns) {
  MutexLock lock(mutex_);
  for (;;) {
    if (lost_.has_value()) return Taken{.failure = lost_};
    if (!works_.empty() && works_.front()->complete) break;
    if (works_.empty() && end_.has_value()) {
      HEADRACE_RETURN_IF_ERROR(*end_);
      return Taken{.ended = true};
    }
    awaited_ = true;
    GiveMemory();
    Pump();  // Batches that have just got memory may have tasks to send.
    if (!works_.empty() && works_.front()->complete) {  // The system had no memory for it.
      awaited_ = false;
      continue;
    }
    bool in_time = true;
    if (timeout_ns < 0) {
      changed_.Wait(mutex_);
    } else {
      in_time = changed_.WaitFor(mutex_, timeout_ns);
    }
    awaited_ = false;
    if (!in_time) return Taken{};
  }
  const std::shared_ptr<Work> work = std::move(works_.front());
  works_.pop_front();
  changed_.NotifyAll();  // There is room.
  if (work->failure.has_value()) return Taken{.failure = std::move(work->failure)};
  ++stats_.batches;
  stats_.samples += work->out->samples.size();
  return Taken{.batch = std::move(work->out)};
}

bool WorkerPool::broken() const {
  MutexLock lock(mutex_);
  return lost_.has_value();
}

WorkerPool::Stats WorkerPool::stats() const {
  MutexLock lock(mutex_);
  Stats stats = stats_;
  if (memory_ != nullptr) stats.memory = memory_->stats();
  return stats;
}

// Takes batches from the source, on a thread of its own.
void WorkerPool::Feed() {
  while (const Source source = EnterSource()) LeaveSource(source(kFeedSliceNs));
}

WorkerPool::Source WorkerPool::EnterSource() {
  MutexLock lock(mutex_);
  while (!stopping_ && !(feeding_ && works_.size() < WorksMax())) {
    changed_.Wait(mutex_);
  }
  if (stopping_) return nullptr;
  inside_ = true;
  return source_;
}

void WorkerPool::LeaveSource(Result<BatchQueue::Taken> taken) {
  MutexLock lock(mutex_);
  inside_ = false;
  changed_.NotifyAll();
  if (!feeding_) return;  // What came is of a run that is over.
  if (!taken.ok() || taken.value().ended) {
    end_ = taken.status();
    feeding_ = false;
  } else if (taken.value().batch != nullptr) {
    Admit(std::move(taken).value().batch);
  }
}

void WorkerPool::Admit(std::shared_ptr<Batch> batch) {
  auto work = std::make_shared<Work>();
  work->out = std::make_unique<TransformedBatch>();
  TransformedBatch& out = *work->out;
  out.epoch = batch->epoch;
  out.step = batch->step;
  out.ends_epoch = batch->ends_epoch;
  out.beyond_budget = batch->beyond_budget;
  out.samples = batch->samples;
  work->in = std::move(batch);
  const std::uint64_t rows = out.samples.size();
  const std::uint64_t task_rows = TaskRows(rows);
  for (std::uint64_t first = 0; first < rows; first += task_rows) {
    work->tasks.push_back({.first = first, .rows = std::min(task_rows, rows - first)});
  }
  work->open = work->tasks.size();
  if (plain_.has_value() && !options_.whole_batches && options_.ragged == RaggedRows::kError) {
    out.layout = plain_->ForRows(rows);
    work->direct = true;
    work->waits = true;
  }
  works_.push_back(std::move(work));
  GiveMemory();
  Pump();
}

std::size_t WorkerPool::WorksMax() const {
  if (batch_bytes_ == 0) return 1;
  const std::uint64_t room = options_.memory_bytes / batch_bytes_;
  std::uint64_t works = room - std::min(room, kBatchesOfConsumer);
  // Workers keep results that they may not write yet: as much memory again.
  if (options_.whole_batches || options_.ragged != RaggedRows::kError) works /= 2;
  return std::clamp<std::uint64_t>(works, 1, options_.batches_max);
}

std::uint64_t WorkerPool::TaskRows(std::uint64_t rows) const {
  if (options_.whole_batches) return std::max<std::uint64_t>(rows, 1);
  const std::uint64_t workers = workers_.size();
  if (row_ns_ == 0) return std::max<std::uint64_t>(DivideUp(rows, 2 * workers), 1);
  const std::uint64_t least = std::max<std::uint64_t>(DivideUp(rows, 8 * workers), 1);
  const std::uint64_t most = std::max<std::uint64_t>(DivideUp(rows, workers), 1);
  return std::clamp(DivideUp(kTaskNs, row_ns_), least, most);
}

std::optional<std::size_t> WorkerPool::IdleWorker() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (!worker.ready || worker.lost || worker.computing.size() >= kTasksAWorker) continue;
    if (!best.has_value() || worker.computing.size() < workers_[*best].computing.size()) best = i;
  }
  return best;
}

void WorkerPool::Pump() {
  for (const std::shared_ptr<Work>& work : works_) {
    while (work->sent < work->tasks.size() && !work->waits) {
      const std::optional<std::size_t> worker = IdleWorker();
      if (!worker.has_value()) return;
      SendCompute(*worker, work, work->sent++);
    }
  }
}

void WorkerPool::SendCompute(std::size_t worker, const std::shared_ptr<Work>& work,
                             std::size_t position) {
  Task& task = work->tasks[position];
  task.worker = worker;
  task.number = ++task_number_;
  tasks_.emplace(task.number, TaskPlace(work, position));
  workers_[worker].computing.push_back(task.number);
  sender_.Compute(worker, {.number = task.number, .first = task.first, .rows = task.rows},
                  *work->in, *work->out, work->direct);
}

void WorkerPool::SendForget(Task& task) {
  sender_.Forget(task.worker, task.number);
  task.kept.reset();
  tasks_.erase(task.number);
}

// Hears what workers say, on a thread of its own.
void WorkerPool::Hear() {
  std::vector<pollfd> polled;
  std::vector<std::size_t> numbers;
  for (;;) {
    polled.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    numbers.clear();
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (workers_[i].lost) continue;
        polled.push_back({.fd = connections_[i]->fd(), .events = POLLIN, .revents = 0});
        numbers.push_back(i);
      }
    }
    const int ready = poll(polled.data(), polled.size(), -1);
    HEADRACE_CHECK(ready >= 0 || errno == EINTR);
    if (ready < 0) continue;
    if (polled[0].revents != 0) {
      std::uint64_t count = 0;
      static_cast<void>(read(wake_.get(), &count, sizeof count));
      MutexLock lock(mutex_);
      GiveMemory();
      Pump();
    }
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) HearWorker(numbers[i - 1]);
    }
  }
}

void WorkerPool::HearWorker(std::size_t worker) {
  for (;;) {
    Result<std::optional<IpcMessage>> received = connections_[worker]->Receive(0);
    if (received.ok() && !received.value().has_value()) return;
    Result<WorkerReply> reply = received.ok() ? ParseReply(received.value()->bytes)
                                              : Result<WorkerReply>(received.status());
    MutexLock lock(mutex_);
    if (!reply.ok()) {
      const bool gone = reply.status().code() == StatusCode::kUnavailable;
      Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost,
                    .text = gone ? "" : std::string(reply.status().message())});
      return;
    }
    OnReply(worker, std::move(reply).value());
    if (workers_[worker].lost) return;
  }
}

void WorkerPool::OnReply(std::size_t worker, WorkerReply reply) {
  if (reply.kind == ReplyMessage::kReady) {
    workers_[worker].ready = true;
    return Pump();
  }
  if (reply.kind == ReplyMessage::kFailed) {
    return Lose(worker, {.kind = TransformFailure::Kind::kStart,
                         .text = std::move(reply.text),
                         .pickle = std::move(reply.pickle)});
  }
  const auto found = tasks_.find(reply.task);
  if (found == tasks_.end() || found->second.first->tasks[found->second.second].worker != worker) {
    return Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost,
                         .text = "it answered what it was not asked"});
  }
  const auto [work, position] = found->second;
  Task& task = work->tasks[position];
  std::erase(workers_[worker].computing, reply.task);
  const bool keeps = reply.kind == ReplyMessage::kShaped;
  if (keeps &&
      (task.kept.has_value() || reply.shapes.rows != (options_.whole_batches ? 1 : task.rows))) {
    return Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost,
                         .text = "it answered for other rows than it was asked for"});
  }
  if (reply.kind == ReplyMessage::kError) {
    if (!work->failure.has_value() || work->failure->tasks[0].first_slot > reply.slot) {
      const std::uint64_t slot = std::clamp(reply.slot, task.first, task.first + task.rows - 1);
      work->failure = {.kind = TransformFailure::Kind::kTransform,
                       .worker = worker,
                       .text = std::move(reply.text),
                       .pickle = std::move(reply.pickle),
                       .tasks = {SamplesOf(*work->out, slot, 1)}};
    }
  }
  if (reply.busy_ns > 0) {
    const std::uint64_t row_ns = std::max<std::uint64_t>(reply.busy_ns / task.rows, 1);
    row_ns_ = row_ns_ == 0 ? row_ns : (7 * row_ns_ + row_ns) / 8;
    stats_.busy_ns += reply.busy_ns;
    ++stats_.tasks;
    stats_.rows += task.rows;
  }
  if (keeps) {
    task.kept = std::move(reply.shapes);
    task.kept->first_slot = task.first;
    if (work->dropped) SendForget(task);
  } else {
    task.written = reply.kind == ReplyMessage::kDone;
    task.objects = std::move(reply.objects);
    task.kept.reset();
    tasks_.erase(reply.task);
  }
  if (--work->open == 0) Settle(work);
  Pump();
}

void WorkerPool::Settle(const std::shared_ptr<Work>& work) {
  const bool all_written = std::all_of(work->tasks.begin(), work->tasks.end(),
                                       [](const Task& task) { return task.written; });
  if (all_written || work->dropped) return Finish(*work);
  if (work->failure.has_value()) return Fail(*work, *std::move(work->failure));
  std::vector<TaskShapes> shapes;
  for (const Task& task : work->tasks) {
    shapes.push_back(task.written ? ShapesOf(work->out->layout, task.first, task.rows)
                                  : *task.kept);
  }
  const auto shape_failure = [&](std::string text, std::uint64_t slot) {
    return TransformFailure{.kind = TransformFailure::Kind::kShape,
                            .text = std::move(text),
                            .tasks = {SamplesOf(*work->out, slot, 1)}};
  };
  ShapeMismatch mismatch;
  const bool some_written = std::any_of(work->tasks.begin(), work->tasks.end(),
                                        [](const Task& task) { return task.written; });
  if (!MakeOutputLayout(shapes, options_.ragged, work->out->layout, mismatch)) {
    return Fail(*work, shape_failure(std::move(mismatch.text), mismatch.slot));
  }
  if (some_written) {
    return Fail(*work, shape_failure("workers do not agree on how it is written", 0));
  }
  work->out->memory.Reset();  // Its size was a guess that proved wrong.
  work->waits = true;
  GiveMemory();
}

// Records why `work` yields no batch, and drops the results that workers keep of it.
void WorkerPool::Fail(Work& work, TransformFailure failure) {
  work.failure = std::move(failure);
  for (Task& task : work.tasks) {
    if (task.kept.has_value()) SendForget(task);
  }
  Finish(work);
}

void WorkerPool::GiveMemory() {
  for (std::size_t i = 0; i < works_.size(); ++i) {
    const std::shared_ptr<Work> work = works_[i];
    if (!work->out->memory.bytes().empty() || work->complete) continue;
    if (!work->waits) return;  // It is not known yet how much it needs: later ones wait.
    const Result<bool> taken = TakeMemory(*work->out, /*beyond=*/i == 0 && awaited_);
    if (taken.ok() && !taken.value()) return;
    work->waits = false;
    if (taken.ok()) {
      StartWriting(work);
    } else {
      Fail(*work, {.kind = TransformFailure::Kind::kShape,
                   .text = std::string(taken.status().message()),
                   .tasks = {SamplesOf(*work->out, 0, 1)}});
    }
  }
}

void WorkerPool::StartWriting(const std::shared_ptr<Work>& work) {
  if (work->direct && work->sent == 0) return;  // Pump() sends its tasks.
  if (work->out->layout.is_plain()) plain_ = work->out->layout;
  for (std::size_t i = 0; i < work->tasks.size(); ++i) {
    ++work->open;
    Task& task = work->tasks[i];
    task.writing = true;
    sender_.Write(task.worker, {.number = task.number, .first = task.first, .rows = task.rows},
                  *work->out);
  }
}

Result<bool> WorkerPool::TakeMemory(TransformedBatch& batch, bool beyond) {
  const std::uint64_t bytes = std::max<std::uint64_t>(batch.layout.bytes, 1);
  batch_bytes_ = std::max(batch_bytes_, BufferPool::ChargedBytes(bytes));
  if (memory_ == nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(
        memory_, BufferPool::MakeShared(std::max<std::uint64_t>(options_.memory_bytes, 1)));
    memory_->SetReleaseHook([this] { Wake(); });
  }
  std::optional<Buffer> buffer = memory_->Acquire(bytes);
  if (!buffer.has_value()) {
    const BufferPool::Stats stats = memory_->stats();
    if (!beyond && (stats.used_bytes != 0 || stats.beyond_bytes != 0)) return false;
    buffer = memory_->AcquireBeyond(bytes);
    batch.beyond_budget = true;
  }
  if (!buffer.has_value()) {
    return ResourceExhausted("the system has no memory for a batch of {}", FormatBytes(bytes));
  }
  batch.memory = *std::move(buffer);
  changed_.NotifyAll();  // WorksMax() has changed.
  return true;
}

void WorkerPool::Finish(Work& work) {
  for (Task& task : work.tasks) work.out->objects.push_back(std::move(task.objects));
  work.in.reset();  // Not before: results may be views of what came in.
  work.complete = true;
  changed_.NotifyAll();
}

void WorkerPool::Lose(std::size_t worker, TransformFailure failure) {
  Worker& each = workers_[worker];
  each.lost = true;
  sender_.Close(worker);
  if (lost_.has_value()) return;
  failure.worker = worker;
  if (!each.ready) failure.kind = TransformFailure::Kind::kStart;
  for (const std::uint64_t number : each.computing) {
    const auto& [work, position] = tasks_.at(number);
    const Task& task = work->tasks[position];
    failure.tasks.push_back(SamplesOf(*work->out, task.first, task.rows));
  }
  lost_ = std::move(failure);
  changed_.NotifyAll();
}

}  // namespace headrace
