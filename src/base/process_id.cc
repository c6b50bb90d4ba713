#include "base/process_id.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"

namespace headrace {
namespace {

// 0: not asked for yet.
std::atomic<pid_t>& Known() {
  static constinit std::atomic<pid_t> known{0};
  return known;
}

void Renew() { Known().store(::getpid(), std::memory_order_relaxed); }

}  // namespace

pid_t ProcessId() {
  const pid_t known = Known().load(std::memory_order_relaxed);
  if (known != 0) return known;
  // Without a lock, which a fork could leave locked; a handler that is there twice does no harm.
  HEADRACE_CHECK(pthread_atfork(nullptr, nullptr, &Renew) == 0);
  Renew();
  return ::getpid();
}

}  // namespace headrace
