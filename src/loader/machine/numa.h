#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headrace {

// A part of the machine whose processors are near its memory.
struct NumaNode {
  int number = 0;  // the system's number
  std::vector<int> cpus;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// The NUMA nodes that have processors, by number. Empty if the system does not tell.
std::vector<NumaNode> ReadNumaNodes(const std::string& root = "/sys/devices/system/node");

// Parses a list such as "0-3,8,10-11"; std::nullopt if it is not one.
std::optional<std::vector<int>> ParseCpuList(const std::string& text);

// Processors that a process may run on; empty if it is gone or the system denies the query. 0: this
// process.
std::vector<int> CpusOfProcess(int pid);

// Asks the system to take untouched pages of `bytes` from NUMA node `number` while it has free
// ones. Best effort.
void PreferMemoryOf(int number, std::span<std::byte> bytes);

// A job's view of the machine, and how it places memory. Tests pass their own.
struct NumaRequest {
  std::vector<NumaNode> nodes = ReadNumaNodes();
  std::vector<std::vector<int>> lane_cpus;  // of each lane's process; missing or empty: unknown
  std::function<void(int number, std::span<std::byte> bytes)> prefer = PreferMemoryOf;
};

// Returns for each of `lanes` lanes the position in `nodes` of its NUMA node: the node that has all
// processors of the lane's process. If no node does, consecutive lanes of equal number go to each
// node, as GPUs are usually attached. All 0 with fewer than two nodes.
std::vector<std::size_t> NumaNodesOfLanes(const NumaRequest& request, std::size_t lanes);

}  // namespace headrace
