#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "gil/gil.h"
#include "headrace/loader.h"
#include "status.h"

namespace headrace::bindings {

// How calls end runs, or wait for the end of one, and check for Ctrl-C meanwhile. The GIL must be
// held. `let_go` drops the caller's references, as for GilRelease; then the thread stops or the
// call throws.

// How long leaving a loop waits for reads in flight. The next start waits for the others.
constexpr std::int64_t kStopNs = 300'000'000;

// Ends the run. Waits for reads in flight until `timeout_ns` after the run was first asked to end,
// and calls `goes_on` now and then; if that returns false, stops waiting and returns false.
template <typename GoesOn>
bool StopWithin(BatchSource& loader, std::int64_t timeout_ns, GoesOn goes_on,
                const std::function<void()>& let_go) {
  for (;;) {
    bool last = false;
    const bool ended = WithoutGil(
        [&] {
          const std::int64_t left_ns = loader.LeftOf(timeout_ns);
          last = left_ns <= kSignalsEveryNs;
          return loader.Stop(std::min(left_ns, kSignalsEveryNs));
        },
        let_go);
    if (ended) return true;
    if (!goes_on()) return false;
    if (last) return true;
  }
}

// Waits for the reads of the run before without a limit: the next run needs their memory. `ended`
// waits for them up to kSignalsEveryNs without the GIL and returns whether they have ended. Throws
// its error, and the exception of a signal handler.
template <typename Ended>
void AwaitRunBefore(Ended ended, const std::function<void()>& let_go) {
  for (;;) {
    const Result<bool> got = WithoutGil(ended, let_go);
    if (!got.ok()) {
      WithoutGil([&] { let_go(); });  // This may be the last reference: the destructor takes time.
      ThrowStatus(got.status());
    }
    if (got.value()) return;
    if (!SignalsPass()) throw nanobind::python_error();
  }
}

}  // namespace headrace::bindings
