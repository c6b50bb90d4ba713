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

CollectiveStart::CollectiveStart(std::string job, std::uint32_t first_rank, std::uint32_t seats)
    : job_(std::move(job)), first_rank_(first_rank), seats_(seats) {}

std::string CollectiveStart::Named(std::uint32_t seat) const {
  return "rank " + std::to_string(first_rank_ + seat);
}

void CollectiveStart::Join(std::uint32_t seat) { seats_[seat] = {.presence = Presence::kHere}; }

void CollectiveStart::Leave(std::uint32_t seat) {
  Withdraw(seat);
  seats_[seat].presence = Presence::kGone;
}

Status CollectiveStart::Ask(std::uint32_t seat, Wish wish) {
  // One that was in a run before waits: the others may yet ask as it does.
  for (std::uint32_t other = 0; other < seats_.size() && !seats_[seat].next; ++other) {
    if (!seats_[other].in_run) continue;
    return Status(StatusCode::kFailedPrecondition,
                  Named(seat) + " joins job '" + job_ + "' again and asks for " +
                      Shown(wish.position) + ", but " + Named(other) + " is already at " +
                      Shown(*seats_[other].next) +
                      " or later: start all ranks of the node again, with the same state_dict()");
  }
  seats_[seat].wish = std::move(wish);
  return Status();
}

void CollectiveStart::Withdraw(std::uint32_t seat) {
  seats_[seat].wish.reset();
  seats_[seat].in_run = false;
}

Result<std::optional<CollectiveStart::Wish>> CollectiveStart::Agreed() const {
  const Wish* first = nullptr;
  bool equal = true;
  std::string all;
  for (std::uint32_t seat = 0; seat < seats_.size(); ++seat) {
    const SeatState& each = seats_[seat];
    if (each.presence == Presence::kGone) continue;
    if (!each.wish.has_value()) return std::optional<Wish>();
    if (first == nullptr) first = &*each.wish;
    equal = equal && each.wish->position == first->position &&
            each.wish->list.has_value() == first->list.has_value();
    all += (all.empty() ? "" : ", ") + Named(seat) + " asks for " + Shown(each.wish->position) +
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
  for (SeatState& seat : seats_) {
    if (!seat.wish.has_value()) continue;
    seat.wish.reset();
    seat.in_run = true;
    seat.next = position;
  }
}

std::vector<std::uint32_t> CollectiveStart::Awaited() const {
  std::vector<std::uint32_t> ranks = AwaitedSeats();
  for (std::uint32_t& rank : ranks) rank += first_rank_;
  return ranks;
}

std::vector<std::uint32_t> CollectiveStart::AwaitedSeats() const {
  std::vector<std::uint32_t> awaited;
  for (std::uint32_t seat = 0; seat < seats_.size(); ++seat) {
    const SeatState& each = seats_[seat];
    if (each.presence != Presence::kGone && !each.wish.has_value()) awaited.push_back(seat);
  }
  const bool waits = std::any_of(seats_.begin(), seats_.end(),
                                 [](const SeatState& seat) { return seat.wish.has_value(); });
  return waits ? awaited : std::vector<std::uint32_t>();
}

Status CollectiveStart::GiveUp(std::uint32_t seat, std::uint64_t start,
                               std::int64_t waited_ns) const {
  const std::optional<Wish>& wish = seats_[seat].wish;
  if (!wish.has_value() || wish->start != start) return Status();  // It has begun, or was left.
  std::string missing;
  for (const std::uint32_t each : AwaitedSeats()) {
    if (seats_[each].presence != Presence::kAwaited) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(each);
  }
  if (missing.empty()) return Status();
  return Status(
      StatusCode::kDeadlineExceeded,
      fmt::format("starting {} of job '{}': {} waited {} s for local rank {} of {}, which "
                  "made no loader: make the same loaders on every rank of the node, in "
                  "the same order, or raise Node.start_timeout",
                  Shown(wish->position), job_, Named(seat), waited_ns / 1'000'000'000, missing,
                  seats_.size()));
}

Status CollectiveStart::Took(std::uint32_t seat, Position next, const Pace& pace) {
  seats_[seat].next = next;
  const Position at = LoopOf(next, pace);
  for (std::uint32_t other = 0; other < seats_.size(); ++other) {
    const SeatState& each = seats_[other];
    if (!each.wish.has_value() || !each.next.has_value()) continue;
    // One that stays in its epoch, or goes back, waits for others that may yet do the same, until
    // the epoch ends.
    const bool goes_back = each.wish->position.epoch <= each.next->epoch;
    if (goes_back && at.epoch <= each.next->epoch) continue;
    if (each.wish->position >= at) continue;
    return Status(StatusCode::kFailedPrecondition,
                  Named(other) + " left its loop at " + Shown(*each.next) + " and waits to start " +
                      Shown(each.wish->position) + ", but " + Named(seat) +
                      " did not leave there and is past that: leave an epoch on every rank of a "
                      "node, or on none");
  }
  return Status();
}

}  // namespace headrace
