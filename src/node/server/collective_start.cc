#include "node/server/collective_start.h"
#include "base/format/errors.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

std::string Shown(const Position& position) {
  return fmt::format("epoch {} step {}", position.epoch, position.step);
}

// Lower bound of the loop's position, given the batches taken: those before `next`.
Position LoopOf(const Position& next, const CollectiveStart::Pace& pace) {
  if (pace.batches_behind == 0) return next;
  const std::uint64_t steps = pace.steps_per_epoch;
  const std::uint64_t taken = next.epoch * steps + next.step;
  if (taken <= pace.batches_behind) return {};
  const std::uint64_t last = taken - pace.batches_behind - 1;  // that the loop certainly received
  return {.epoch = last / steps, .step = last % steps + 1};
}

}  // namespace

CollectiveStart::CollectiveStart(std::string job, std::uint32_t first_rank, std::uint32_t ranks)
    : job_(std::move(job)), first_rank_(first_rank), ranks_(ranks) {}

std::string CollectiveStart::Named(std::uint32_t local_rank) const {
  return "rank " + std::to_string(first_rank_ + local_rank);
}

void CollectiveStart::Join(std::uint32_t local_rank) {
  ranks_[local_rank] = {.presence = Presence::kHere};
}

void CollectiveStart::Leave(std::uint32_t local_rank) {
  Withdraw(local_rank);
  ranks_[local_rank].presence = Presence::kGone;
}

Status CollectiveStart::Ask(std::uint32_t local_rank, Wish wish) {
  // One that was in a run before waits: the others may yet ask as it does.
  for (std::uint32_t other = 0; other < ranks_.size() && !ranks_[local_rank].next; ++other) {
    if (!ranks_[other].in_run) continue;
    return Status(StatusCode::kFailedPrecondition,
                  Named(local_rank) + " joins job '" + job_ + "' again and asks for " +
                      Shown(wish.position) + ", but " + Named(other) + " is already at " +
                      Shown(*ranks_[other].next) +
                      " or later: start all ranks of the node again, with the same state_dict()");
  }
  ranks_[local_rank].wish = std::move(wish);
  return Status();
}

void CollectiveStart::Withdraw(std::uint32_t local_rank) {
  ranks_[local_rank].wish.reset();
  ranks_[local_rank].in_run = false;
}

Result<std::optional<CollectiveStart::Wish>> CollectiveStart::Agreed() const {
  const Wish* first = nullptr;
  bool equal = true;
  std::string all;
  for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    const RankState& each = ranks_[local_rank];
    if (each.presence == Presence::kGone) continue;
    if (!each.wish.has_value()) return std::optional<Wish>();
    if (first == nullptr) first = &*each.wish;
    equal = equal && each.wish->position == first->position &&
            each.wish->list.has_value() == first->list.has_value();
    all += (all.empty() ? "" : ", ") + Named(local_rank) + " asks for " +
           Shown(each.wish->position) +
           (each.wish->list.has_value() ? " of a list of samples" : "");
  }
  if (first == nullptr) return std::optional<Wish>();
  if (equal) return std::optional<Wish>(*first);
  return Status(StatusCode::kFailedPrecondition,
                "starting job '" + job_ + "': " + all +
                    ": the ranks of a node must start at the same step; call iter(), set_epoch() "
                    "and load_state_dict() equally on each");
}

void CollectiveStart::Begin(Position position) {
  for (RankState& local_rank : ranks_) {
    if (!local_rank.wish.has_value()) continue;
    local_rank.wish.reset();
    local_rank.in_run = true;
    local_rank.next = position;
  }
}

std::vector<std::uint32_t> CollectiveStart::Awaited() const {
  std::vector<std::uint32_t> ranks = AwaitedRanks();
  for (std::uint32_t& rank : ranks) rank += first_rank_;
  return ranks;
}

std::vector<std::uint32_t> CollectiveStart::AwaitedRanks() const {
  std::vector<std::uint32_t> awaited;
  for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    const RankState& each = ranks_[local_rank];
    if (each.presence != Presence::kGone && !each.wish.has_value()) awaited.push_back(local_rank);
  }
  const bool waits = std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& local_rank) {
    return local_rank.wish.has_value();
  });
  return waits ? awaited : std::vector<std::uint32_t>();
}

Status CollectiveStart::GiveUp(std::uint32_t local_rank, std::uint64_t start,
                               std::int64_t waited_ns) const {
  const std::optional<Wish>& wish = ranks_[local_rank].wish;
  if (!wish.has_value() || wish->start != start) return Status();  // It has begun, or was left.
  std::string missing;
  for (const std::uint32_t each : AwaitedRanks()) {
    if (ranks_[each].presence != Presence::kAwaited) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(each);
  }
  if (missing.empty()) return Status();
  return Status(
      StatusCode::kDeadlineExceeded,
      fmt::format("starting {} of job '{}': {} waited {} s for local rank {} of {}, which "
                  "made no loader: make the same loaders on every rank of the node, in "
                  "the same order, or raise Node.start_timeout",
                  Shown(wish->position), job_, Named(local_rank), waited_ns / 1'000'000'000,
                  missing, ranks_.size()));
}

Status CollectiveStart::Took(std::uint32_t local_rank, Position next, const Pace& pace) {
  ranks_[local_rank].next = next;
  const Position at = LoopOf(next, pace);
  for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
    const RankState& each = ranks_[other];
    if (!each.wish.has_value() || !each.next.has_value()) continue;
    // One that stays in its epoch, or goes back, waits for others that may yet do the same, until
    // the epoch ends.
    const bool goes_back = each.wish->position.epoch <= each.next->epoch;
    if (goes_back && at.epoch <= each.next->epoch) continue;
    if (each.wish->position >= at) continue;
    return Status(StatusCode::kFailedPrecondition,
                  Named(other) + " left its loop at " + Shown(*each.next) + " and waits to start " +
                      Shown(each.wish->position) + ", but " + Named(local_rank) +
                      " did not leave there and is past that: leave an epoch on every rank of a "
                      "node, or on none");
  }
  return Status();
}

}  // namespace headrace
