#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "plan/exact_order.h"
#include "plan/order.h"

namespace headrace {

// Decides when the ranks of a node begin a run together, or why they cannot. Ranks are known
// by their local rank, from 0. Tracks which are connected, which position each asked for, and how
// far each is in its run. Sends and starts nothing.
//
// Thread safety: none.
class CollectiveStart {
 public:
  // A rank's request to start a run.
  struct Wish {
    std::uint64_t start = 0;  // the rank's own number of the run
    Position position;
    std::optional<ListOrderOptions> list;
  };

  // `job` and `first_rank`, that of local rank 0, are for messages.
  CollectiveStart(std::string job, std::uint32_t first_rank, std::uint32_t ranks);

  // The rank has connected. It is in no run yet.
  void Join(std::uint32_t local_rank);
  // The rank is gone. The others continue without it.
  void Leave(std::uint32_t local_rank);
  [[nodiscard]] bool here(std::uint32_t local_rank) const {
    return ranks_[local_rank].presence == Presence::kHere;
  }

  // Errors: FailedPrecondition  the rank came back while others are in a run without it
  Status Ask(std::uint32_t local_rank, Wish wish);
  // Drops the rank's request and takes it out of its run.
  void Withdraw(std::uint32_t local_rank);
  [[nodiscard]] const std::optional<Wish>& wish(std::uint32_t local_rank) const {
    return ranks_[local_rank].wish;
  }

  // The request that all connected ranks agree on. std::nullopt: a rank has not asked yet, or none
  // is connected.
  //
  // Errors: FailedPrecondition  ranks ask for different runs
  [[nodiscard]] Result<std::optional<Wish>> Agreed() const;
  // A run began at `position` with all ranks that asked.
  void Begin(Position position);

  // The ranks that others wait for, by their numbers in the job; empty if no rank waits.
  [[nodiscard]] std::vector<std::uint32_t> Awaited() const;
  // Returns the error that ends this rank's wait for run `start`: some ranks never connected. OK:
  // continue to wait.
  [[nodiscard]] Status GiveUp(std::uint32_t local_rank, std::uint64_t start,
                              std::int64_t waited_ns) const;

  // By how much a rank's training loop may lag behind the batches that the rank took.
  struct Pace {
    std::uint64_t steps_per_epoch = 1;
    std::uint64_t batches_behind = 0;
  };
  // The rank took the batch before position `next`.
  //
  // Errors: FailedPrecondition  other ranks wait for a run that this rank has passed
  Status Took(std::uint32_t local_rank, Position next, const Pace& pace);

  // "rank 5".
  [[nodiscard]] std::string Named(std::uint32_t local_rank) const;

 private:
  [[nodiscard]] std::vector<std::uint32_t> AwaitedRanks() const;

  enum class Presence : std::uint8_t { kAwaited, kHere, kGone };

  struct RankState {
    Presence presence = Presence::kAwaited;
    bool in_run = false;
    std::optional<Wish> wish;      // set while it waits for the others
    std::optional<Position> next;  // the step after the last one taken; unset: it was in no run
  };

  const std::string job_;
  const std::uint32_t first_rank_;
  std::vector<RankState> ranks_;
};

}  // namespace headrace
