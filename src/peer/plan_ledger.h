#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fetch/fetch.h"
#include "headrace/status.h"

namespace headrace {

// A node's plan for consecutive steps of one epoch: some numbers for each step, which must be equal
// on all nodes.
struct PlannedSteps {
  static constexpr std::size_t kFields = 3;
  using Sums = std::array<std::uint64_t, kFields>;

  std::uint64_t round = 0;  // of the run: as in Agreement
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // the first one
  std::vector<Sums> sums;
};

// An epoch and a step of it.
using PlannedAt = std::pair<std::uint64_t, std::uint64_t>;

// Two nodes have different numbers for a step.
struct PlanDifference {
  NodeNumber node = 0;  // the other one
  PlannedAt at;
  std::size_t field = 0;            // the first that differs
  std::optional<PlannedAt> agreed;  // the last step that was found equal; nothing: none was
};

// Compares what the nodes of a job plan, as their steps become known: no node waits for another.
// Steps that a node has not planned yet are compared later; those that one has forgotten are not
// compared, since the numbers of a step contain those of all earlier ones.
//
// Thread safety: every method may be called from any thread.
class PlanLedger {
 public:
  // The most steps kept of this node, of each other node, and in one message.
  static constexpr std::size_t kStepsKept = 1024;
  // The most runs that another node may be ahead.
  static constexpr std::uint64_t kRoundsAhead = 2;

  PlanLedger(NodeNumber node, NodeNumber nodes) : node_(node), others_(nodes) {}

  // A run begins. Earlier runs are no longer compared.
  void Begin(std::uint64_t round) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Adds the next steps that this node has planned.
  void Plan(const PlannedSteps& steps) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Adds steps that another node has planned.
  //
  // Errors: InvalidArgument  there is no such other node, the round is too far ahead, or the steps
  //                          are too many
  Status Say(NodeNumber node, const PlannedSteps& steps) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Returns the first known difference of a run, once for each run that has one.
  std::optional<PlanDifference> Take() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Steps of other nodes that were compared, in all runs.
  [[nodiscard]] std::uint64_t compared() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  using Steps = std::map<PlannedAt, PlannedSteps::Sums>;
  struct Other {
    std::uint64_t round = 0;  // of `said`
    Steps said;               // and not compared
    std::optional<PlannedAt> agreed;
  };

  static void Add(const PlannedSteps& steps, Steps& to);
  // Compares all that can be.
  void Compare(NodeNumber node) HEADRACE_LOCKS_REQUIRED(mutex_);

  const NodeNumber node_;

  mutable Mutex mutex_;
  std::uint64_t round_ HEADRACE_GUARDED_BY(mutex_) = 0;
  Steps own_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Other> others_ HEADRACE_GUARDED_BY(mutex_);
  bool found_ HEADRACE_GUARDED_BY(mutex_) = false;                        // in this run
  std::optional<PlanDifference> difference_ HEADRACE_GUARDED_BY(mutex_);  // and not taken
  std::uint64_t compared_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
