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

// What a node has planned for consecutive steps of one epoch: some numbers for each step, which
// other nodes must come to, too.
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
// Steps that a node has not come to yet, or that one has forgotten, are compared when it does, or
// not at all: the numbers of a step contain those of all earlier ones.
//
// Thread safety: every method may be called from any thread.
class PlanLedger {
 public:
  // Steps that are kept: of this node, of each other node, and in one message.
  static constexpr std::size_t kStepsKept = 1024;
  // Runs that another node may be ahead.
  static constexpr std::uint64_t kRoundsAhead = 2;

  PlanLedger(NodeNumber node, NodeNumber nodes) : node_(node), others_(nodes) {}

  // A run begins. Of earlier ones nothing is compared any more.
  void Begin(std::uint64_t round) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // What this node has planned next.
  void Plan(const PlannedSteps& steps) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // What another node says that it has planned.
  //
  // Errors: InvalidArgument  there is no such other node, the round is too far ahead, or the steps
  //                          are too many
  Status Say(NodeNumber node, const PlannedSteps& steps) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // The first difference that is known of a run: once for each run that has one.
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
