#pragma once

// Releases the GIL while the core works and takes it again, also while the interpreter ends.
//
// When the interpreter finalizes, Python calls pthread_exit() in every other thread that asks for
// the GIL. The unwinding runs destructors of the core, which aborts the process. Only daemon
// threads, here called worker threads, still run then. So:
//   1. Before the interpreter finalizes, an atexit hook on the main thread calls BeginExit().
//   2. From then on, a worker thread that returns from the core, or asks for a loader, stops there
//      without the GIL until the process ends.
//   3. BeginExit() waits for worker threads that are already taking the GIL. No worker thread asks
//      for it later.
// A worker thread that the main thread joins at exit calls ExemptThread(): rule 2 does not apply
// to it.

#include <Python.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace headrace::bindings {

// Rules 1 and 3. The main thread calls it once, holding the GIL.
void BeginExit();

// Rule 2, for a worker thread that is about to use an object that the main thread closes at exit,
// or to raise that it is closed. The GIL must be held. The thread stops nowhere else before it
// releases the GIL.
void StopAtExit();

// Rule 2 does not apply to the calling thread: the main thread joins it at exit.
void ExemptThread();

// Releases the GIL for its lifetime. The GIL must be held. A worker thread that stops in the
// destructor (rule 2) first calls `let_go`, to drop references to objects that the main thread
// closes.
class GilRelease {
 public:
  explicit GilRelease(std::function<void()> let_go = nullptr);
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  const std::function<void()> let_go_;
  PyThreadState* const state_;
};

// Holds the GIL for its lifetime, inside a GilRelease of the same thread.
class GilAcquire {
 public:
  GilAcquire();
  ~GilAcquire();
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

// Runs `work`, a call into the core that can block, without the GIL, and returns its result with
// the GIL held again. `work` must not touch Python. The GIL must be held.
template <typename Work>
auto WithoutGil(Work work, std::function<void()> let_go = nullptr) {
  const GilRelease released(std::move(let_go));
  return work();
}

// How often a waiting call checks for signals (Ctrl-C).
constexpr std::int64_t kSignalsEveryNs = 50'000'000;

// Waits until `done`, which needs no GIL and which nobody announces, at most `timeout_ns`.
void PollUntil(const std::function<bool()>& done, std::int64_t timeout_ns);

// On the main thread, runs the Python handlers of pending signals. Returns false if one raised; its
// exception is then set. The GIL must be held.
inline bool SignalsPass() { return PyErr_CheckSignals() == 0; }

}  // namespace headrace::bindings
