#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "loader/session/other_nodes.h"
#include "node/protocol/messages.h"
#include "peer/peer_options.h"
#include "peer/plan_ledger.h"
#include "plan/order_factory.h"

namespace headrace {

class PeerNode;

// The other nodes of a job, over the network. Before a run, compares the facts of each node (its
// options, the resolved parameters of its order, the contents of its tiers) with this node's: nodes
// with different plans would request samples that nobody has, or deliver samples twice. During the
// run, compares their plans.
//
// Thread safety: every method may be called from any thread.
class JobNodes final : public OtherNodes {
 public:
  // Listens by open.options.nodes. `keep_waiting`: false ends waits for other nodes; several
  // threads call it. `hurry`: requested when the process is to end.
  //
  // Errors: those of PeerNode::Listen
  static Result<std::shared_ptr<JobNodes>> Make(const OpenSession& open,
                                                std::function<bool()> keep_waiting,
                                                std::stop_token hurry = {});
  ~JobNodes() override;

  // The address at which other nodes reach this one.
  [[nodiscard]] const std::string& address() const;
  // Errors: InvalidArgument  the group does not have as many nodes as the job; those of
  //                          PeerNode::Connect
  Status Connect(PeerGroup group);
  // The resolved parameters of the session's order. Call before the first run.
  void SetParameters(OrderParameters parameters) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // FailedPrecondition if the plan of a run differs from another node's: once for each run.
  Status TakeDifference();

  // The most steps in one message: 1 at the beginning of a run, then 2, 4, and so on up to this.
  static constexpr std::size_t kStepsTold = 64;

  [[nodiscard]] FetchSource& source() override;
  Result<std::vector<NodeFacts>> Agree(const NodeFacts& own) override
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::uint64_t round() const override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void StopTaking(std::uint64_t round) override;
  bool AnyTakes() override;
  [[nodiscard]] std::int64_t patience_ns() const override { return patience_ns_; }
  void Plan(const StepSums& sums) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Give(HeldSamples* held) override;
  [[nodiscard]] NodeTraffic traffic() const override;

 private:
  JobNodes(const OpenSession& open, std::function<bool()> keep_waiting, std::stop_token hurry,
           std::unique_ptr<PeerNode> peers);

  const OpenSession open_;  // without what may differ between nodes
  const std::function<bool()> keep_waiting_;
  const std::stop_token hurry_;
  std::atomic<std::int64_t> patience_ns_ = 0;
  const NodeNumber node_;
  const NodeNumber nodes_;
  const std::unique_ptr<PeerNode> peers_;

  mutable Mutex mutex_;
  OrderParameters parameters_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t round_ HEADRACE_GUARDED_BY(mutex_) = 0;
  PlannedSteps planned_ HEADRACE_GUARDED_BY(mutex_);  // and not told
  std::size_t steps_told_ HEADRACE_GUARDED_BY(mutex_) = 1;
};

}  // namespace headrace
