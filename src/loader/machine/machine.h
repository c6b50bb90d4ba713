#pragma once

#include <cstdint>

namespace headrace {

// Processors that this process may use: the smaller of its affinity mask and its cgroup's CPU
// quota. At least 1.
int UsableCores();

// Bytes of memory that this process may use: the smaller of physical memory and its cgroup's limit.
std::uint64_t MemoryLimitBytes();

// Bytes read from block devices for this process since it started (/proc/self/io); negative if the
// system does not tell.
std::int64_t DeviceReadBytes();

}  // namespace headrace
