#include "base/memory/guarded_copy.h"

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

// The model makes access to it safe in a handler: nothing is allocated.
thread_local Landing* current_landing __attribute__((tls_model("initial-exec"))) = nullptr;

Mutex guard_mutex;
// Written before the handler is installed, and read by it.
struct sigaction action_before = {};
volatile std::sig_atomic_t passed_on = 0;

void PassOn(int signal, siginfo_t* info, void* context) {
  const bool function = action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN;
  // A handler that ends the process may raise the signal anew, and find this one again.
  if (function && passed_on == 0) {
    passed_on = 1;
    if ((action_before.sa_flags & SA_SIGINFO) != 0) {
      action_before.sa_sigaction(signal, info, context);
    } else {
      action_before.sa_handler(signal);
    }
    passed_on = 0;
    return;
  }
  struct sigaction fatal = {};
  fatal.sa_handler = SIG_DFL;
  (void)::sigaction(signal, &fatal, nullptr);
  if (info->si_code <= 0) (void)::raise(signal);  // Sent by a process: it does not come back.
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  Landing* const landing = current_landing;
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  if (landing != nullptr && info->si_code > 0 && at >= landing->begin && at < landing->end) {
    siglongjmp(landing->jump, 1);
  }
  PassOn(signal, info, context);
}

}  // namespace

void InstallCopyGuard() {
  struct sigaction now = {};
  HEADRACE_CHECK(::sigaction(SIGBUS, nullptr, &now) == 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  MutexLock lock(guard_mutex);
  HEADRACE_CHECK(::sigaction(SIGBUS, nullptr, &now) == 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  action_before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = OnBusError;
  // SA_NODEFER: the jump out of the handler leaves no signal blocked.
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  HEADRACE_CHECK(::sigaction(SIGBUS, &ours, nullptr) == 0);
}

bool GuardedCopy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.empty()) return true;
  Landing landing;
  landing.begin = from.data();
  landing.end = from.data() + from.size();
  if (sigsetjmp(landing.jump, /*savemask=*/0) != 0) {
    current_landing = nullptr;
    return false;
  }
  current_landing = &landing;
  std::memcpy(to.data(), from.data(), from.size());
  // The copy must not move out of the two assignments.
  asm volatile("" ::: "memory");
  current_landing = nullptr;
  return true;
}

}  // namespace headrace
