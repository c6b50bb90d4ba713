#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace headrace {

// The number of this process, as getpid(), but without a system call: a child of fork() has its own
// (of clone(2) or vfork(2) past libc it has the parent's). What has threads or locks compares it
// with the one that it was made in: in a child both are gone, or not to be trusted.
//
// Thread safety: any thread.
pid_t ProcessId();

// How long ago a process began, rounded down: the system tells it to a tick, 10 ms mostly;
// nothing of one that has ended, or that this pid namespace does not see.
//
// Thread safety: any thread.
std::optional<std::int64_t> ProcessAgeNs(pid_t pid);

}  // namespace headrace
