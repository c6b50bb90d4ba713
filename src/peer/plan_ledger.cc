#include "peer/plan_ledger.h"

#include <algorithm>

#include "base/format/errors.h"

namespace headrace {

void PlanLedger::Begin(std::uint64_t round) {
  MutexLock lock(mutex_);
  round_ = round;
  own_.clear();
  found_ = false;
  for (Other& other : others_) {
    other.agreed.reset();
    if (other.round == round) continue;  // Said before this node began it.
    other.round = round;
    other.said.clear();
  }
}

void PlanLedger::Add(const PlannedSteps& steps, Steps& to) {
  for (std::size_t i = 0; i < steps.sums.size(); ++i) {
    to.try_emplace({steps.epoch, steps.step + i}, steps.sums[i]);
  }
  while (to.size() > kStepsKept) to.erase(to.begin());
}

void PlanLedger::Plan(const PlannedSteps& steps) {
  MutexLock lock(mutex_);
  if (steps.round != round_) return;  // The planner of a run that was left.
  Add(steps, own_);
  for (NodeNumber node = 0; node < others_.size(); ++node) Compare(node);
}

Status PlanLedger::Say(NodeNumber node, const PlannedSteps& steps) {
  MutexLock lock(mutex_);
  if (node >= others_.size() || node == node_) {
    return InvalidArgument("node {} says what it plans: it must be one of the other {} nodes", node,
                           others_.size() - 1);
  }
  if (steps.sums.size() > kStepsKept) {
    return InvalidArgument("node {} says what it plans: {} steps at once, must be at most {}", node,
                           steps.sums.size(), kStepsKept);
  }
  if (steps.round > round_ + kRoundsAhead) {
    return InvalidArgument("node {} plans run {}, node {} is at run {}; all must begin as many",
                           node, steps.round, node_, round_);
  }
  Other& other = others_[node];
  if (steps.round < std::max(round_, other.round)) return Status();  // It came late.
  if (steps.round > other.round) {
    other.round = steps.round;
    other.said.clear();
  }
  Add(steps, other.said);
  Compare(node);
  return Status();
}

void PlanLedger::Compare(NodeNumber node) {
  Other& other = others_[node];
  if (other.round != round_ || own_.empty()) return;
  const PlannedAt last = own_.rbegin()->first;
  while (!other.said.empty() && other.said.begin()->first <= last) {
    const auto said = other.said.extract(other.said.begin());
    const auto own = own_.find(said.key());
    if (own == own_.end()) continue;  // Forgotten, or this node's run has no such step.
    ++compared_;
    if (said.mapped() == own->second) {
      const bool after = difference_.has_value() && said.key() > difference_->at;
      if (!after) other.agreed = std::max(other.agreed.value_or(said.key()), said.key());
      continue;
    }
    // Messages may overtake each other: an earlier step replaces a later one.
    if (found_ && (!difference_.has_value() || said.key() >= difference_->at)) continue;
    found_ = true;
    const auto field = std::ranges::mismatch(said.mapped(), own->second).in1;
    difference_ = {.node = node,
                   .at = said.key(),
                   .field = static_cast<std::size_t>(field - said.mapped().begin()),
                   .agreed = std::nullopt};
  }
  if (difference_.has_value() && difference_->node == node) difference_->agreed = other.agreed;
}

std::optional<PlanDifference> PlanLedger::Take() {
  MutexLock lock(mutex_);
  return std::exchange(difference_, std::nullopt);
}

std::uint64_t PlanLedger::compared() const {
  MutexLock lock(mutex_);
  return compared_;
}

}  // namespace headrace
