#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace headrace {

// loader/ending/ ends runs and jobs within a time limit, even if storage does not answer.

// Destroys `what`. The caller must hold the last reference. Waits up to `timeout_ns`. Returns false
// if the destructor still runs; a thread of the process's *reaper* then finishes it. At process
// exit the reaper is leaked, because the kernel may still write to that memory. A forked child
// leaves the parent's objects alone.
//
// If no thread can be started, runs the destructor on the calling thread, without a limit.
//
// `folders`: folders that nobody else can open until `what` is destroyed.
//
// Thread safety: any thread, and a child forked at any moment.
bool DestroyWithin(std::shared_ptr<void> what, std::int64_t timeout_ns,
                   const std::vector<std::string>& folders = {});

// True if this process's reaper still runs the destructor of an object that has this folder.
// Compares absolute paths as text.
bool ReaperHolds(const std::string& folder);

// The number of objects whose destructors the reaper of this process still runs. For tests.
std::size_t ReaperObjectCount();

}  // namespace headrace
