#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace headrace {

// The number of this process, as getpid() but without a system call. A child of fork() sees its own
// (a child of clone(2) or vfork(2) outside libc sees its parent's). An object that has threads or
// locks compares it with the process that made the object: in a child it can use neither.
//
// Thread safety: any thread.
pid_t ProcessId();

// The age of a process, rounded down; the system's resolution is a tick, mostly 10 ms. std::nullopt
// if the process has ended or is not visible in this pid namespace.
//
// Thread safety: any thread.
std::optional<std::int64_t> ProcessAgeNs(pid_t pid);

// Whether a signal has stopped the process (SIGSTOP, SIGTSTP). A debugger does not count.
//
// Thread safety: any thread.
bool ProcessIsStopped(pid_t pid);

}  // namespace headrace
