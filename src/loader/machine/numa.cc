#include "loader/machine/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace headrace {
namespace {

constexpr int kCpusMax = 1 << 16;

bool ParseNumber(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 &&
         number < kCpusMax;
}

bool ParseRange(std::string_view text, std::vector<int>& cpus) {
  const std::size_t dash = text.find('-');
  int first = 0;
  int last = 0;
  if (!ParseNumber(text.substr(0, dash), first)) return false;
  last = first;
  if (dash != std::string_view::npos && !ParseNumber(text.substr(dash + 1), last)) return false;
  for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return last >= first;
}

}  // namespace

std::optional<std::vector<int>> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  std::string_view rest = text;
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == ' ')) rest.remove_suffix(1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (!ParseRange(rest.substr(0, comma), cpus)) return std::nullopt;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return cpus;
}

std::vector<NumaNode> ReadNumaNodes(const std::string& root) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    NumaNode node;
    if (!name.starts_with("node") || !ParseNumber(std::string_view(name).substr(4), node.number)) {
      continue;
    }
    std::ifstream file(entry->path() / "cpulist");
    std::string text;
    std::getline(file, text);
    std::optional<std::vector<int>> cpus = ParseCpuList(text);
    if (!cpus.has_value() || cpus->empty()) continue;
    node.cpus = *std::move(cpus);
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return nodes;
}

std::vector<int> CpusOfProcess(int pid) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(pid, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void PreferMemoryOf(int number, std::span<std::byte> bytes) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  if (bytes.empty() || number < 0 || number >= kBits) return;
  const unsigned long mask = 1UL << static_cast<unsigned>(number);
  // Refused: the memory comes from where the system takes it.
  (void)syscall(SYS_mbind, bytes.data(), bytes.size(), MPOL_PREFERRED, &mask, kBits, 0);
}

std::vector<std::size_t> NumaNodesOfLanes(const NumaRequest& request, std::size_t lanes) {
  std::vector<std::size_t> of_lanes(lanes, 0);
  const std::vector<NumaNode>& nodes = request.nodes;
  if (nodes.size() < 2) return of_lanes;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    of_lanes[lane] = lane * nodes.size() / lanes;
    if (lane >= request.lane_cpus.size() || request.lane_cpus[lane].empty()) continue;
    const std::vector<int>& cpus = request.lane_cpus[lane];
    const auto home = std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& node) {
      return std::all_of(cpus.begin(), cpus.end(), [&](int cpu) {
        return std::find(node.cpus.begin(), node.cpus.end(), cpu) != node.cpus.end();
      });
    });
    if (home != nodes.end()) of_lanes[lane] = static_cast<std::size_t>(home - nodes.begin());
  }
  return of_lanes;
}

}  // namespace headrace
