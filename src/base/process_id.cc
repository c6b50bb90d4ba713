#include "base/process_id.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/units.h"

namespace headrace {
namespace {

// 0: not known yet.
std::atomic<pid_t>& Known() {
  static constinit std::atomic<pid_t> known{0};
  return known;
}

// The fields of the process that follow its name; empty if it has ended or is not visible. The name
// may contain anything.
std::string StatAfterName(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? std::string() : stat.substr(name_end + 1);
}

void Renew() { Known().store(::getpid(), std::memory_order_relaxed); }

}  // namespace

pid_t ProcessId() {
  const pid_t known = Known().load(std::memory_order_relaxed);
  if (known != 0) return known;
  // No lock: a fork could leave it locked. Registering the handler twice does no harm.
  HEADRACE_CHECK(pthread_atfork(nullptr, nullptr, &Renew) == 0);
  Renew();
  return ::getpid();
}

std::optional<std::int64_t> ProcessAgeNs(pid_t pid) {
  constexpr int kFieldsBefore = 19;  // between the name and when it began
  std::istringstream fields(StatAfterName(pid));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  std::int64_t began = 0;  // in ticks since the system booted
  timespec now{};
  const long ticks = ::sysconf(_SC_CLK_TCK);
  if (!(fields >> began) || ticks <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
    return std::nullopt;
  }
  const std::int64_t latest_ns = (began + 1) * (kNsPerSecond / ticks);
  return std::max<std::int64_t>(0, now.tv_sec * kNsPerSecond + now.tv_nsec - latest_ns);
}

bool ProcessIsStopped(pid_t pid) {
  std::istringstream fields(StatAfterName(pid));
  std::string state;
  return (fields >> state) && state == "T";
}

}  // namespace headrace
