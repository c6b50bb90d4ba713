#pragma once

#include <cstdint>
#include <optional>

#include "headrace/status.h"
#include "node/client/remote_link.h"

namespace headrace {

// Whether a node process that somebody waits for can answer at all: a stopped one (SIGSTOP) keeps
// its connections, and nothing else would end the wait. Reads its state from /proc, some 20 us.
//
// Thread safety: none.
class NodeState {
 public:
  static constexpr std::int64_t kLookEveryNs = 1'000'000'000;

  // Call it now and then during a wait; looks once in kLookEveryNs.
  //
  // Errors: DeadlineExceeded  it has been stopped at each look, for limit_ns
  Status Check(const RemoteLink& node, std::int64_t now_ns, std::int64_t limit_ns);

 private:
  std::optional<std::int64_t> looked_ns_;
  std::optional<std::int64_t> stopped_since_ns_;
};

}  // namespace headrace
