#pragma once

#include <cstdint>
#include <vector>

#include "fetch/fetch.h"
#include "fetch/held_samples.h"
#include "headrace/members.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "plan/order.h"
#include "plan/placement/step_sums.h"

namespace headrace {

// The run that a node begins, and what its tiers hold. The plans of all nodes depend on it.
struct NodeFacts {
  Position start;
  std::vector<std::uint64_t> capacity_units;     // by tier
  std::vector<std::vector<std::uint32_t>> held;  // by tier: blocks
};
HEADRACE_MEMBERS(NodeFacts, start, capacity_units, held)

// The other nodes of the job, as a session sees them. node/server/ implements it, on peer/grpc/.
//
// Thread safety: every method may be called from any thread.
// Ownership: outlives the session.
class OtherNodes {
 public:
  virtual ~OtherNodes() = default;

  // Reads samples of other nodes: SampleAtNode, PartAtNode.
  [[nodiscard]] virtual FetchSource& source() = 0;

  // Sends the facts of this node to all others, and waits until all have sent theirs. Every
  // node calls it once for each run, in the same order. Returns the facts of each, by node.
  //
  // Errors: FailedPrecondition  nodes run different things; the message names node and difference
  //         DeadlineExceeded    a node did not send its facts in time; the message names it
  //         Cancelled           the caller's client has gone; Unavailable  no node can be reached
  virtual Result<std::vector<NodeFacts>> Agree(const NodeFacts& own) = 0;

  // The number of the run that Agree() began last, on all nodes; 0: none.
  [[nodiscard]] virtual std::uint64_t round() const = 0;

  // The loop of run `round` has ended here: this node takes no parcels of it any more. Before the
  // first call of AnyTakes() for it. Does nothing if Agree() has begun a newer one.
  virtual void StopTaking(std::uint64_t round) = 0;
  // Whether a node that is behind may still take parcels of that run; false, too, if this process
  // is to end. Does not wait.
  virtual bool AnyTakes() = 0;
  // How long to wait for such a node.
  [[nodiscard]] virtual std::int64_t patience_ns() const = 0;

  // `sums`: those of the newest run's plan after its next step. They are compared with those of the
  // other nodes, now and then; a difference ends the run. Does not wait.
  virtual void Plan(const StepSums& sums) = 0;

  // From now on the others get samples from `held`; null: none. Returns when the previous `held` is
  // no longer in use.
  virtual void Give(HeldSamples* held) = 0;

  [[nodiscard]] virtual NodeTraffic traffic() const = 0;
};

}  // namespace headrace
