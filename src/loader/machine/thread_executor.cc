#include "loader/machine/thread_executor.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

void RunOn(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(cpu), &set);
  }
  (void)sched_setaffinity(0, sizeof(set), &set);  // Refused: then it runs where it may.
}

}  // namespace

Result<std::unique_ptr<ThreadExecutor>> ThreadExecutor::Make(const ThreadExecutorOptions& options) {
  HEADRACE_CHECK(options.threads > 0);
  std::unique_ptr<ThreadExecutor> executor(new ThreadExecutor());
  HEADRACE_RETURN_IF_ERROR(executor->StartThreads(options));  // Ends those there are, on an error.
  return executor;
}

Status ThreadExecutor::StartThreads(const ThreadExecutorOptions& options) {
  threads_.reserve(static_cast<std::size_t>(options.threads));
  try {
    while (threads_.size() < static_cast<std::size_t>(options.threads)) {
      threads_.emplace_back([this, options] {
        pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
        // Of this thread alone, as Linux has it. Refused: then it runs as the others do.
        if (options.nice != 0) (void)setpriority(PRIO_PROCESS, 0, options.nice);
        if (!options.cpus.empty()) RunOn(options.cpus);
        Work();
      });
    }
  } catch (const std::system_error& refused) {  // The only way in which std::thread says so.
    return ResourceExhausted(
        "starting {} {}: the system gave {} ({}); lower threads=, or raise the limit on processes "
        "(ulimit -u) or memory",
        Counted(static_cast<std::uint64_t>(options.threads), "thread"), options.name,
        threads_.size(), refused.code().message());
  }
  return Status();
}

ThreadExecutor::~ThreadExecutor() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  submitted_.NotifyAll();
  threads_.clear();  // Joins.
}

void ThreadExecutor::Submit(std::uint64_t deadline, Task task) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    waiting_.push_back({deadline, next_number_++, std::move(task)});
    std::push_heap(waiting_.begin(), waiting_.end());
    wake = idle_ > 0;
  }
  if (wake) submitted_.NotifyOne();
}

void ThreadExecutor::SubmitLong(Task task) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    waiting_long_.push_back(std::move(task));
    wake = idle_ > 0;
  }
  if (wake) submitted_.NotifyOne();
}

bool ThreadExecutor::RunOne() {
  Task task;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) return false;
    task = TakeFirst();
  }
  task();
  return true;
}

Executor::Task ThreadExecutor::TakeFirst() {
  std::pop_heap(waiting_.begin(), waiting_.end());
  Task task = std::move(waiting_.back().task);
  waiting_.pop_back();
  return task;
}

void ThreadExecutor::Work() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && waiting_long_.empty()) {
        if (closing_) return;
        ++idle_;
        submitted_.Wait(mutex_);
        --idle_;
      }
      if (waiting_long_.empty()) {
        task = TakeFirst();
      } else {
        task = std::move(waiting_long_.front());
        waiting_long_.pop_front();
      }
    }
    task();
  }
}

}  // namespace headrace
