#include "peer/agreement.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::int64_t kSliceNs = 50 * kNsPerMs;

}  // namespace

Status Agreement::Say(NodeNumber node, std::uint64_t round, const std::string& facts) {
  if (node >= nodes_) {
    return InvalidArgument("node {} says what it runs: the job has {} nodes", node, nodes_);
  }
  MutexLock lock(mutex_);
  if (round < oldest_) return Status();  // A message that came late: it was heard.
  if (round > oldest_ + kRoundsAhead) {
    return InvalidArgument(
        "node {} begins run {}, node {} is at run {}; all nodes must begin as many", node, round,
        node_, oldest_);
  }
  const auto [said, first] = rounds_[round].try_emplace(node, facts);
  if (!first && said->second != facts) {
    return FailedPrecondition(
        "node {} says two things of run {}; see that all run the same version of headrace", node,
        round);
  }
  said_.NotifyAll();
  return Status();
}

Result<std::vector<std::string>> Agreement::Await(std::uint64_t round, std::int64_t timeout_ns,
                                                  const std::function<bool()>& keep_waiting) {
  const MonotonicClock clock;
  const std::int64_t until_ns = clock.NowNanos() + timeout_ns;
  MutexLock lock(mutex_);
  oldest_ = std::max(oldest_, round);
  rounds_.erase(rounds_.begin(), rounds_.lower_bound(round));
  while (rounds_[round].size() < nodes_) {
    const std::int64_t left_ns = until_ns - clock.NowNanos();
    if (left_ns <= 0) {
      std::string missing;
      for (NodeNumber node = 0; node < nodes_; ++node) {
        if (rounds_[round].contains(node)) continue;
        missing += (missing.empty() ? "" : ", ") + std::to_string(node);
      }
      return Status(StatusCode::kDeadlineExceeded,
                    fmt::format("beginning run {}: node {} did not begin it within {} s; see "
                                "whether its ranks still iterate, in the same order of loaders and "
                                "epochs as those of node {}",
                                round, missing, timeout_ns / kNsPerSecond, node_));
    }
    static_cast<void>(said_.WaitFor(mutex_, std::min(left_ns, kSliceNs)));
    mutex_.Unlock();
    const bool goes_on = keep_waiting();
    mutex_.Lock();
    if (!goes_on) {
      return Status(StatusCode::kCancelled, "beginning a run: given up before all nodes began it");
    }
  }
  std::vector<std::string> all;
  for (auto& [node, facts] : rounds_[round]) all.push_back(std::move(facts));
  rounds_.erase(round);
  oldest_ = round + 1;
  return all;
}

}  // namespace headrace
