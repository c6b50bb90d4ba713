#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/exact_order.h"
#include "plan/order.h"

namespace headrace {

// Decides when the ranks of a node begin a run together, and says why they cannot. Lanes are the
// node's ranks, from 0 on. Knows who is there, who asked for which position, and how far each is in
// the run that it takes part in; sends and starts nothing.
//
// Thread safety: none.
class CollectiveStart {
 public:
  // What a rank wants started.
  struct Wish {
    std::uint64_t start = 0;  // the rank's own number of the run
    Position position;
    std::optional<ListOrderOptions> list;
  };

  // `job` and `first_rank`, the rank of lane 0, are for messages.
  CollectiveStart(std::string job, std::uint32_t first_rank, std::uint32_t lanes);

  // The rank is there from now on, and takes part in nothing yet.
  void Join(std::uint32_t lane);
  // It is gone: the others go on without it.
  void Leave(std::uint32_t lane);
  [[nodiscard]] bool here(std::uint32_t lane) const {
    return lanes_[lane].presence == Presence::kHere;
  }

  // Errors: FailedPrecondition  it came back, and others go on in a run that it is not in
  Status Ask(std::uint32_t lane, Wish wish);
  // It asks for nothing any more, and is in no run.
  void Withdraw(std::uint32_t lane);
  [[nodiscard]] const std::optional<Wish>& wish(std::uint32_t lane) const {
    return lanes_[lane].wish;
  }

  // What all that are there ask for; nothing: somebody has not asked, or nobody is there.
  //
  // Errors: FailedPrecondition  they ask for different runs
  [[nodiscard]] Result<std::optional<Wish>> Agreed() const;
  // A run began at `position`, with all that asked.
  void Begin(Position position);

  // Lanes that others wait for; empty: nobody waits.
  [[nodiscard]] std::vector<std::uint32_t> Awaited() const;
  // Why the wait of `lane` for run `start` is given up: ranks never came. OK: it goes on.
  [[nodiscard]] Status GiveUp(std::uint32_t lane, std::uint64_t start,
                              std::int64_t waited_ns) const;

  // How far the loop of a rank may be behind the batches that it took.
  struct Pace {
    std::uint64_t steps_per_epoch = 1;
    std::uint64_t batches_behind = 0;
  };
  // The rank took the batch before `next`.
  //
  // Errors: FailedPrecondition  those that wait would wait for ever, since this one went on
  Status Took(std::uint32_t lane, Position next, const Pace& pace);

  // "rank 5".
  [[nodiscard]] std::string Named(std::uint32_t lane) const;

 private:
  enum class Presence : std::uint8_t { kAwaited, kHere, kGone };

  struct Lane {
    Presence presence = Presence::kAwaited;
    bool in_run = false;
    std::optional<Wish> wish;      // it waits for the others
    std::optional<Position> next;  // the step after the last it took; nothing: it was in no run
  };

  const std::string job_;
  const std::uint32_t first_rank_;
  std::vector<Lane> lanes_;
};

}  // namespace headrace
