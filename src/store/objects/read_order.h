#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "store/objects/read_events.h"

namespace headrace {

// Which of the waiting reads gets the next attempt. Each queue is first in, first out. Reads to try
// again go before new ones, which have waited less; after kRetriedRun of them in a row one new read
// begins, so that reads that never succeed do not keep others out.
//
// A read waits in one queue at a time.
//
// Thread safety: none; one thread drives. Cost: O(log n) a call. Memory: the waiting reads.
class ReadOrder {
 public:
  static constexpr std::uint32_t kRetriedRun = 3;

  enum class Queue : std::uint8_t {
    kNew,      // never tried
    kRetried,  // to be tried again
    kLate,     // has an attempt that is late: wants a second one
  };

  // The place of a read, to remove it.
  struct Place {
    Queue queue;
    std::uint64_t order;
  };

  Place Push(Queue queue, ReadId read);
  void Remove(const Place& place, ReadId read);

  // Takes the next read: of kLate, or of the other two.
  std::optional<ReadId> TakeLate() { return Take(Queue::kLate); }
  std::optional<ReadId> TakeNext();

  [[nodiscard]] bool empty(Queue queue) const { return At(queue).empty(); }

 private:
  using Reads = std::set<std::pair<std::uint64_t, ReadId>>;  // by order

  [[nodiscard]] const Reads& At(Queue queue) const {
    return reads_[static_cast<std::size_t>(queue)];
  }
  std::optional<ReadId> Take(Queue queue);

  std::array<Reads, 3> reads_;
  std::uint64_t pushed_ = 0;
  std::uint32_t retried_run_ = 0;  // in a row
};

}  // namespace headrace
