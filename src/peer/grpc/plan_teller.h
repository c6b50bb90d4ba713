#pragma once

// Seen by peer_node.cc alone: it includes gRPC.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "peer/grpc/node_link.h"
#include "peer/plan_ledger.h"

namespace headrace {

// Tells other nodes what this one plans, and does not wait for them. What a node does not take in
// time is lost: the numbers of later steps contain it.
//
// Thread safety: every method may be called from any thread.
// Shutdown: Close(), and then the destructor; neither on a thread of gRPC.
class PlanTeller {
 public:
  // Calls of one node that may be under way. What comes meanwhile is dropped.
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
  // Ends all calls; later ones do not begin.
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
