#pragma once

// Included by peer_node.cc only: it includes gRPC.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "peer/grpc/node_link.h"
#include "peer/plan_ledger.h"

namespace headrace {

// Sends this node's plan to other nodes, and does not wait for them. Messages that a node does not
// take in time are dropped: the numbers of later steps contain them.
//
// Thread safety: every method may be called from any thread.
// Shutdown: Close(), and then the destructor; neither on a thread of gRPC.
class PlanTeller {
 public:
  // The most calls of one node in flight. Further messages are dropped.
  static constexpr std::size_t kCallsMax = 64;
  static constexpr std::int64_t kCallMs = 10'000;

  PlanTeller();
  ~PlanTeller();
  PlanTeller(const PlanTeller&) = delete;
  PlanTeller& operator=(const PlanTeller&) = delete;

  // To the node of `link`, from `node`.
  void Tell(std::shared_ptr<NodeLink> link, NodeNumber node, const PlannedSteps& steps)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Destroys calls that have ended. Called now and then.
  void Sweep() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Ends all calls and starts no more.
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;
  using Calls = std::list<std::unique_ptr<Call>>;

  void TakeEnded(Calls& to) HEADRACE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar ended_;
  Calls calls_ HEADRACE_GUARDED_BY(mutex_);
  std::map<const NodeLink*, std::size_t> under_way_ HEADRACE_GUARDED_BY(mutex_);  // none has 0
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
