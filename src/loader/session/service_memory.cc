#include "loader/session/service_memory.h"

#include <utility>

#include "base/clock.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/retained_tiers.h"
#include "store/share/read_share.h"

namespace headrace {
namespace {

// One waits; the others copy, as fast as memory allows.
constexpr int kShareThreads = 3;

}  // namespace

Result<ServiceMemory> ServiceMemory::Make(std::uint64_t retained_bytes, std::uint64_t share_bytes) {
  ServiceMemory made{.tiers = std::make_shared<RetainedTiers>(retained_bytes)};
  if (share_bytes == 0) return made;
  HEADRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<ThreadExecutor> executor,
      ThreadExecutor::Make({.threads = kShareThreads, .name = "headrace-share"}));
  static const MonotonicClock clock;
  made.share = std::make_shared<ReadShare>(ReadShareOptions{.capacity_bytes = share_bytes},
                                           std::move(executor), clock);
  return made;
}

}  // namespace headrace
