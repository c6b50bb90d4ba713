#pragma once

#include "base/process_id.h"
#include "headrace/status.h"

namespace headrace {

// The process that opened a session. A forked child has the session's bytes, not its threads.
//
// Thread safety: any thread.
class OwnerProcess {
 public:
  // True in a forked child.
  [[nodiscard]] bool forked() const { return ProcessId() != pid_; }
  // Errors: FailedPrecondition  in a forked child
  [[nodiscard]] Status Check() const;

 private:
  const pid_t pid_ = ProcessId();
};

}  // namespace headrace
