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
  int number = 0;  // as the system counts them
  std::vector<int> cpus;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// The NUMA nodes that have processors, by number. Where the system does not tell: none.
std::vector<NumaNode> ReadNumaNodes(const std::string& root = "/sys/devices/system/node");

// Numbers of "0-3,8,10-11"; nothing if it is not such a list.
std::optional<std::vector<int>> ParseCpuList(const std::string& text);

// Processors that a process may run on; empty: it is gone, or not to be asked. 0: this one.
std::vector<int> CpusOfProcess(int pid);

// A wish: pages of `bytes` that nobody has touched come from NUMA node `number`, while it has any.
void PreferMemoryOf(int number, std::span<std::byte> bytes);

// What a job knows of the machine, and how it asks for memory. Tests give their own.
struct NumaRequest {
  std::vector<NumaNode> nodes = ReadNumaNodes();
  std::vector<std::vector<int>> lane_cpus;  // of each lane's process; missing or empty: not known
  std::function<void(int number, std::span<std::byte> bytes)> prefer = PreferMemoryOf;
};

// The position in `nodes` that serves each of `lanes` lanes: the node that has all processors of
// the lane's process; where that says nothing, lanes are dealt to the nodes in runs of equal
// length, as machines have their GPUs. All 0 with fewer than two nodes.
std::vector<std::size_t> NumaNodesOfLanes(const NumaRequest& request, std::size_t lanes);

}  // namespace headrace
