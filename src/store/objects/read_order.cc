#include "store/objects/read_order.h"

#include "base/check.h"

namespace headrace {

ReadOrder::Place ReadOrder::Push(Queue queue, ReadId read) {
  const Place place{queue, pushed_++};
  reads_[static_cast<std::size_t>(queue)].emplace(place.order, read);
  return place;
}

void ReadOrder::Remove(const Place& place, ReadId read) {
  HEADRACE_CHECK(reads_[static_cast<std::size_t>(place.queue)].erase({place.order, read}) == 1);
}

std::optional<ReadId> ReadOrder::TakeNext() {
  const bool new_turn = retried_run_ >= kRetriedRun && !empty(Queue::kNew);
  if (new_turn || empty(Queue::kRetried)) {
    retried_run_ = 0;
    return Take(Queue::kNew);
  }
  ++retried_run_;
  return Take(Queue::kRetried);
}

std::optional<ReadId> ReadOrder::Take(Queue queue) {
  Reads& reads = reads_[static_cast<std::size_t>(queue)];
  if (reads.empty()) return std::nullopt;
  const ReadId read = reads.begin()->second;
  reads.erase(reads.begin());
  return read;
}

}  // namespace headrace
