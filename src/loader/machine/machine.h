#pragma once

#include <cstdint>

namespace headrace {

// Processors this process may use: its affinity mask, less where a cgroup's CPU quota is lower.
// At least 1.
int UsableCores();

// Bytes of memory this process may use: physical memory, less where a cgroup's limit is lower.
std::uint64_t MemoryLimitBytes();

// Bytes this process has had read from block devices since it began (/proc/self/io); negative where
// the system does not tell.
std::int64_t DeviceReadBytes();

}  // namespace headrace
