#include "workers/worker_pool.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "workers/worker_messages.h"

namespace headrace {
namespace {

// Longest single wait in the source. Halt() waits at most this long if it cannot wake the source.
constexpr std::int64_t kFeedSliceNs = 50 * kNsPerMs;

}  // namespace

Result<std::unique_ptr<WorkerPool>> WorkerPool::Make(WorkerPoolOptions options,
                                                     Connections workers) {
  HEADRACE_CHECK(!workers.empty() && options.batches_max > 0);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) {
    return ResourceExhausted("making a pool of {} workers: eventfd: {}", workers.size(),
                             ErrnoText(errno));
  }
  return std::unique_ptr<WorkerPool>(
      new WorkerPool(std::move(options), std::move(workers), std::move(wake)));
}

WorkerPool::WorkerPool(WorkerPoolOptions options, Connections connections, UniqueFd wake)
    : schema_(std::move(options.schema)),
      connections_(std::move(connections)),
      wake_(std::move(wake)),
      sender_(schema_, connections_),
      memory_({.bytes = options.memory_bytes,
               .batches_max = options.batches_max,
               .twice = !options.form.is_uniform()},
              [this] { Wake(); }),
      queue_(
          options.form, connections_.size(), memory_, sender_, [this] { changed_.NotifyAll(); },
          options.threads),
      feeder_([this] { Feed(); }),
      hearer_([this] { Hear(); }) {}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    HEADRACE_CHECK(!feeding_ && !inside_.has_value());
    stopping_ = true;
    changed_.NotifyAll();
  }
  Wake();
  feeder_.join();
  hearer_.join();
  // A child that the program forked may keep the sockets open: workers see their end all the same.
  for (const auto& connection : connections_) connection->Shutdown();
}

// Wakes Hear(). May be called on any thread, with any lock held.
void WorkerPool::Wake() {
  const std::uint64_t one = 1;
  HEADRACE_CHECK(write(wake_.get(), &one, sizeof one) == sizeof one || errno == EAGAIN);
}

void WorkerPool::Begin(Source source) {
  MutexLock lock(mutex_);
  HEADRACE_CHECK(!feeding_ && queue_.empty());
  source_ = std::move(source);
  end_.reset();
  ++run_;
  feeding_ = true;
  changed_.NotifyAll();
}

void WorkerPool::Halt(const std::function<void()>& stop_source) {
  {
    MutexLock lock(mutex_);
    feeding_ = false;
    queue_.Clear();
    end_ = Status(StatusCode::kCancelled, "the run was stopped");
    changed_.NotifyAll();
  }
  stop_source();
  MutexLock lock(mutex_);
  while (inside_.has_value() && !feeding_) changed_.Wait(mutex_);
  if (!feeding_) source_ = nullptr;  // Else Begin() was called meanwhile: the source is a new one.
}

Result<WorkerPool::Taken> WorkerPool::Next(std::int64_t timeout_ns) {
  const MonotonicClock clock;
  const std::int64_t end_ns = timeout_ns < 0 ? 0 : clock.NowNanos() + timeout_ns;
  MutexLock lock(mutex_);
  while (!queue_.loss().has_value()) {
    if (queue_.is_ready()) return queue_.Take();
    if (queue_.empty() && end_.has_value()) {
      HEADRACE_RETURN_IF_ERROR(*end_);
      return Taken{.ended = true};
    }
    bool in_time = true;
    queue_.SetAwaited(true);
    if (queue_.is_ready()) {
      // The system had no memory for it.
    } else if (timeout_ns < 0) {
      changed_.Wait(mutex_);
    } else {
      const std::int64_t left_ns = end_ns - clock.NowNanos();
      in_time = left_ns > 0 && changed_.WaitFor(mutex_, left_ns);
    }
    queue_.SetAwaited(false);
    if (!in_time) return Taken{};
  }
  return Taken{.failure = queue_.loss()};
}

bool WorkerPool::AwaitIdle(std::int64_t timeout_ns) {
  const MonotonicClock clock;
  const std::int64_t end_ns = clock.NowNanos() + timeout_ns;
  MutexLock lock(mutex_);
  while (!queue_.is_idle()) {
    const std::int64_t left_ns = end_ns - clock.NowNanos();
    if (left_ns <= 0) return false;
    static_cast<void>(changed_.WaitFor(mutex_, left_ns));
  }
  return true;
}

void WorkerPool::RenewMemory() {
  MutexLock lock(mutex_);
  memory_.Renew();
}

void WorkerPool::ReturnFreeMemory() {
  MutexLock lock(mutex_);
  memory_.ReturnFree();
}

bool WorkerPool::broken() const {
  MutexLock lock(mutex_);
  return queue_.loss().has_value();
}

WorkerPool::Stats WorkerPool::stats() const {
  MutexLock lock(mutex_);
  return queue_.stats();
}

// Takes batches from the source, on a thread of its own.
void WorkerPool::Feed() {
  while (const Source source = EnterSource()) LeaveSource(source(kFeedSliceNs));
}

WorkerPool::Source WorkerPool::EnterSource() {
  MutexLock lock(mutex_);
  while (!stopping_ && !(feeding_ && queue_.has_room())) {
    changed_.Wait(mutex_);
  }
  if (stopping_) return nullptr;
  inside_ = run_;
  return source_;
}

void WorkerPool::LeaveSource(Result<TakenBatch> taken) {
  MutexLock lock(mutex_);
  const std::optional<std::uint64_t> run = std::exchange(inside_, std::nullopt);
  changed_.NotifyAll();
  if (!feeding_ || run != run_) return;  // What came is of a run that is over.
  if (!taken.ok() || taken.value().ended) {
    end_ = taken.status();
    feeding_ = false;
  } else if (taken.value().batch != nullptr) {
    queue_.Add(std::move(taken).value().batch);
  }
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
      for (std::size_t i = 0; i < connections_.size(); ++i) {
        if (queue_.is_lost(i)) continue;
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
      queue_.Advance();
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
      changed_.NotifyAll();  // Who waits until no worker is busy waits for this one no more.
      return queue_.Lose(worker, {.kind = TransformFailure::Kind::kWorkerLost,
                                  .text = gone ? "" : std::string(reply.status().message())});
    }
    queue_.OnReply(worker, std::move(reply).value());
    if (queue_.is_lost(worker)) return;
    if (queue_.is_idle()) changed_.NotifyAll();
  }
}

}  // namespace headrace
