#include "gil/gil.h"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/units.h"
#include "module.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

// Longest time that BeginExit() waits for worker threads that take the GIL: another thread may hold
// it.
constexpr std::int64_t kTakersNs = kNsPerSecond;

// State of the process.
struct Exit {
  std::atomic<bool> began = false;
  std::atomic<int> takers = 0;  // worker threads that have read `began` and do not hold the GIL yet
};

Exit& TheExit() {
  static Exit exit;
  return exit;
}

bool& IsExempt() {
  thread_local bool exempt = false;
  return exempt;
}

// Whether BeginExit() was called, and the calling thread is a worker thread that must stop.
bool StopsHere() { return TheExit().began && !IsExempt(); }

[[noreturn]] void WaitForEnd() {
  for (;;) ::pause();
}

// Counts the calling thread among the takers. Never returns if the thread must stop.
void BeginTaking(const std::function<void()>& let_go) {
  ++TheExit().takers;
  if (StopsHere()) {
    --TheExit().takers;
    if (let_go) let_go();
    WaitForEnd();
  }
}

}  // namespace

void BeginExit() {
  IsExempt() = true;
  TheExit().began = true;
  const GilRelease released;
  PollUntil([] { return TheExit().takers == 0; }, kTakersNs);
}

void StopAtExit() {
  if (!StopsHere()) return;
  static_cast<void>(PyEval_SaveThread());
  WaitForEnd();
}

void ExemptThread() { IsExempt() = true; }

void PollUntil(const std::function<bool()>& done, std::int64_t timeout_ns) {
  const MonotonicClock clock;
  const std::int64_t begin_ns = clock.NowNanos();
  Mutex mutex;
  CondVar nobody;
  MutexLock lock(mutex);
  while (!done() && clock.NowNanos() - begin_ns < timeout_ns) {
    static_cast<void>(nobody.WaitFor(mutex, kNsPerMs));
  }
}

GilRelease::GilRelease(std::function<void()> let_go)
    : let_go_(std::move(let_go)), state_(PyEval_SaveThread()) {}

GilRelease::~GilRelease() {
  BeginTaking(let_go_);
  PyEval_RestoreThread(state_);
  --TheExit().takers;
}

GilAcquire::GilAcquire() {
  BeginTaking(nullptr);
  state_ = PyGILState_Ensure();
  --TheExit().takers;
}

GilAcquire::~GilAcquire() { PyGILState_Release(state_); }

void BindExit(nb::module_& module) {
  // A forked child has one thread, and that thread is not taking the GIL. Its interpreter goes on,
  // even if its parent's is about to finalize.
  (void)pthread_atfork(nullptr, nullptr, [] {
    TheExit().takers = 0;
    TheExit().began = false;
    IsExempt() = false;
  });
  module.def(
      "begin_exit", [] { BeginExit(); },
      "The interpreter is about to finalize: other threads stop where they meet the core.");
  module.def(
      "stop_at_exit", [] { StopAtExit(); },
      "Returns, unless begin_exit() was called, and this is a thread that stops then.");
  module.def(
      "stops_at_exit", [] { return StopsHere(); },
      "Whether stop_at_exit() would stop this thread.");
  module.def(
      "exempt_thread", [] { ExemptThread(); },
      "This thread does not stop then: who ends the interpreter waits for it.");
  module.def(
      "allow_leaks", [] { nb::set_leak_warnings(false); },
      "Threads that go on while the interpreter ends keep objects: nanobind is not to report "
      "them.");
}

}  // namespace headrace::bindings
