#include "loader/machine/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace headrace {
namespace {

// Whether `controller` is one of the comma-separated `names`; version 2 has none.
bool Names(const std::string& names, const std::string& controller) {
  if (controller.empty()) return names.empty();
  std::istringstream list(names);
  std::string name;
  while (std::getline(list, name, ',')) {
    if (name == controller) return true;
  }
  return false;
}

// The folders of this process's cgroup for `controller` ("" for version 2), innermost first.
std::vector<std::string> CgroupFolders(const std::string& controller) {
  std::vector<std::string> folders;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (!Names(names, controller)) continue;
    std::string base = "/sys/fs/cgroup";
    if (!controller.empty()) base.append("/").append(controller);
    for (std::string path = line.substr(second + 1); !path.empty() && path != "/";
         path.resize(path.find_last_of('/'))) {
      folders.push_back(base + path);
    }
    folders.push_back(base);
  }
  return folders;
}

std::optional<double> ReadNumber(const std::string& path, int position = 0) {
  std::ifstream file(path);
  std::string word;
  for (int i = 0; i <= position; ++i) {
    if (!(file >> word)) return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  return end == word.c_str() ? std::nullopt : std::optional<double>(number);
}

}  // namespace

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  for (const std::string& folder : CgroupFolders("cpu")) {
    const auto quota = ReadNumber(folder + "/cpu.cfs_quota_us");
    const auto period = ReadNumber(folder + "/cpu.cfs_period_us");
    if (quota && period && *quota > 0 && *period > 0) cores = std::min(cores, *quota / *period);
  }
  for (const std::string& folder : CgroupFolders("")) {
    const auto quota = ReadNumber(folder + "/cpu.max", 0);  // "max" is no number
    const auto period = ReadNumber(folder + "/cpu.max", 1);
    if (quota && period && *quota > 0 && *period > 0) cores = std::min(cores, *quota / *period);
  }
  return std::max(1, static_cast<int>(std::floor(cores)));
}

std::uint64_t MemoryLimitBytes() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : CgroupFolders("memory")) {
    if (const auto limit = ReadNumber(folder + "/memory.limit_in_bytes")) {
      bytes = std::min(bytes, *limit);
    }
  }
  for (const std::string& folder : CgroupFolders("")) {
    if (const auto limit = ReadNumber(folder + "/memory.max")) bytes = std::min(bytes, *limit);
  }
  return static_cast<std::uint64_t>(bytes);
}

std::int64_t DeviceReadBytes() {
  std::ifstream io("/proc/self/io");
  std::string key;
  std::int64_t value = 0;
  while (io >> key >> value) {
    if (key == "read_bytes:") return value;
  }
  return -1;
}

}  // namespace headrace
