#include "node/client/node_state.h"

#include "base/format/errors.h"
#include "base/process_id.h"
#include "base/units.h"

namespace headrace {

Status NodeState::Check(const RemoteLink& node, std::int64_t now_ns, std::int64_t limit_ns) {
  if (looked_ns_.has_value() && now_ns - *looked_ns_ < kLookEveryNs) return Status();
  looked_ns_ = now_ns;
  if (!ProcessIsStopped(node.node_pid())) {
    stopped_since_ns_.reset();
    return Status();
  }
  if (!stopped_since_ns_.has_value()) stopped_since_ns_ = now_ns;
  const std::int64_t stopped_ns = now_ns - *stopped_since_ns_;
  if (stopped_ns < limit_ns) return Status();
  return Status(
      StatusCode::kDeadlineExceeded,
      fmt::format(
          "waiting for a batch of {}: it has been stopped for {} s, as by SIGSTOP: continue "
          "it (kill -CONT {}) and start again, or raise Node.start_timeout",
          node.Node(), stopped_ns / kNsPerSecond, node.node_pid()));
}

}  // namespace headrace
