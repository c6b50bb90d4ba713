#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/process_id.h"
#include "headrace/status.h"
#include "store/rowgroups/reader_process.h"

namespace headrace {

// Readers that wait for work. They start when they are needed, and take a third of a second for it;
// so all stores of a process share a pool, which ends with the last of them.
//
// Thread safety: any thread.
// Shutdown: the destructor ends the readers that wait.
class ReaderPool {
 public:
  static constexpr std::size_t kIdleMax = 4;

  // `command`: see helper_command.h.
  explicit ReaderPool(std::vector<std::string> command) : command_(std::move(command)) {}

  // The pool of this process with this command; a new one if nobody has it.
  static std::shared_ptr<ReaderPool> Shared(const std::vector<std::string>& command);

  // Errors: those of ReaderProcess::Start
  Result<std::unique_ptr<ReaderProcess>> Take() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Ends the reader if it is not usable, or if enough wait.
  void Give(std::unique_ptr<ReaderProcess> reader) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // The processes that wait; for tests.
  [[nodiscard]] std::vector<pid_t> idle() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // Readers belong to the process that started them: a forked child has a pool of its own.
  const pid_t process_ = ProcessId();
  const std::vector<std::string> command_;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<ReaderProcess>> idle_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
