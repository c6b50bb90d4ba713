#include "node/server/ending_jobs.h"

#include <utility>

#include "headrace/status.h"

namespace headrace {

void EndingJobs::Run(std::function<void()> end) {
  if (!Begin(end)) end();
}

bool EndingJobs::Begin(std::function<void()>& end) {
  MutexLock lock(mutex_);
  ending_jobs_.remove_if([](const EndingJob& each) { return each.ended.load(); });
  if (ending_jobs_.size() >= kThreadsMax) return false;
  Result<std::unique_ptr<ThreadExecutor>> thread =
      ThreadExecutor::Make({.threads = 1, .name = "headrace-leave"});
  if (!thread.ok()) return false;
  EndingJob& ending_job = ending_jobs_.emplace_back();
  ending_job.thread = std::move(thread).value();
  ending_job.thread->Submit(0, [end = std::move(end), ended = &ending_job.ended]() mutable {
    std::exchange(end, nullptr)();
    *ended = true;
  });
  return true;
}

}  // namespace headrace
