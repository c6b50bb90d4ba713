#include "base/memory/guarded_copy.h"

#include <pthread.h>
#include <ucontext.h>

#include <csetjmp>
#include <csignal>
#include <cstring>

#include "base/check.h"
#include "base/mutex.h"

namespace headrace {
namespace {

// The copy that a thread is in.
struct Landing {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  sigjmp_buf jump{};
};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler has no other place.
// Of each thread its Landing. No thread_local: access to that may allocate, in a handler, too.
pthread_key_t landing_key;

Mutex guard_mutex;
// Written before the handler is installed, and read by it.
struct sigaction action_before = {};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

// The handler before is installed again, and hears of the signal as if this one had not been there.
void PassOn(int signal, const siginfo_t* info) {
  (void)::sigaction(signal, &action_before, nullptr);
  if (info->si_code <= 0) (void)::raise(signal);  // Sent by a process: it does not come back.
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  auto* const landing = static_cast<Landing*>(::pthread_getspecific(landing_key));
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  if (landing != nullptr && info->si_code > 0 && at >= landing->begin && at < landing->end) {
    // The jump leaves the mask as it is in the handler.
    (void)::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(landing->jump, 1);
  }
  PassOn(signal, info);
}

}  // namespace

void InstallCopyGuard() {
  static const bool has_key = ::pthread_key_create(&landing_key, nullptr) == 0;
  HEADRACE_CHECK(has_key);
  struct sigaction now = {};
  HEADRACE_CHECK(::sigaction(SIGBUS, nullptr, &now) == 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  MutexLock lock(guard_mutex);
  HEADRACE_CHECK(::sigaction(SIGBUS, nullptr, &now) == 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  action_before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  HEADRACE_CHECK(::sigaction(SIGBUS, &ours, nullptr) == 0);
}

bool GuardedCopy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.empty()) return true;
  Landing landing;
  landing.begin = from.data();
  landing.end = from.data() + from.size();
  if (sigsetjmp(landing.jump, /*savemask=*/0) != 0) {
    (void)::pthread_setspecific(landing_key, nullptr);
    return false;
  }
  if (::pthread_setspecific(landing_key, &landing) != 0) return false;
  // The copy must not move out of the two calls.
  asm volatile("" ::: "memory");
  std::memcpy(to.data(), from.data(), from.size());
  asm volatile("" ::: "memory");
  (void)::pthread_setspecific(landing_key, nullptr);
  return true;
}

}  // namespace headrace
