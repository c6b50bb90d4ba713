#pragma once

// peer/ connects the node processes of a job: it fetches samples from the tiers of other nodes and
// gives them those of this one, and compares the runs that nodes begin. peer/grpc/ does so
// over gRPC, which only that folder includes and only headrace-node links. Neither knows orders,
// engines or loaders.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "fetch/fetch.h"
#include "headrace/status.h"

namespace headrace {

// Exchanges facts between the nodes of a job before each run, one round for each run.
//
// Thread safety: every method may be called from any thread.
class Agreement {
 public:
  // The most rounds that another node may be ahead, and the most bytes of its facts in one.
  static constexpr std::uint64_t kRoundsAhead = 2;
  static constexpr std::size_t kFactsBytesMax = std::size_t{1} << 30;

  Agreement(NodeNumber node, NodeNumber nodes) : node_(node), nodes_(nodes) {}

  // A node, or this one, states its `facts` for `round`, from 1 up. It may repeat the same ones.
  //
  // Errors: InvalidArgument     there is no such node, or the round is too far ahead
  //         FailedPrecondition  it stated other facts before
  Status Say(NodeNumber node, std::uint64_t round, const std::string& facts)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Waits until every node has stated its facts for `round`, up to `timeout_ns`. Returns them by
  // node; earlier rounds are forgotten. Calls `keep_waiting` now and then.
  //
  // Errors: Cancelled         `keep_waiting` returned false
  //         DeadlineExceeded  names the nodes that have not stated theirs
  Result<std::vector<std::string>> Await(std::uint64_t round, std::int64_t timeout_ns,
                                         const std::function<bool()>& keep_waiting)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  const NodeNumber node_;
  const NodeNumber nodes_;

  Mutex mutex_;
  CondVar said_;
  std::uint64_t oldest_ HEADRACE_GUARDED_BY(mutex_) = 1;  // round that is not forgotten
  std::map<std::uint64_t, std::map<NodeNumber, std::string>> rounds_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
