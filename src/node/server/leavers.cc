#include "node/server/leavers.h"

#include <utility>

#include "headrace/status.h"

namespace headrace {

void Leavers::Run(std::function<void()> end) {
  if (!Begin(end)) end();
}

bool Leavers::Begin(std::function<void()>& end) {
  MutexLock lock(mutex_);
  leavers_.remove_if([](const Leaver& each) { return each.ended.load(); });
  if (leavers_.size() >= kThreadsMax) return false;
  Result<std::unique_ptr<ThreadExecutor>> thread =
      ThreadExecutor::Make({.threads = 1, .name = "headrace-leave"});
  if (!thread.ok()) return false;
  Leaver& leaver = leavers_.emplace_back();
  leaver.thread = std::move(thread).value();
  leaver.thread->Submit(0, [end = std::move(end), ended = &leaver.ended]() mutable {
    std::exchange(end, nullptr)();
    *ended = true;
  });
  return true;
}

}  // namespace headrace
