#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "headrace/ids.h"
#include "plan/order.h"

namespace headrace {

// Packs what the homes of the `epoch` order send each other into parcels, as one node sees it:
// those that it sends, and reads of those that it expects. A home sends all that it holds for
// others when the step ends, and before it would hold more than the limit.
//
// Thread safety: none.
class EpochParcels {
 public:
  // One sample on its way from its home to the node of its rank.
  struct Sent {
    std::uint32_t home = 0;
    std::uint32_t to = 0;
    SampleId sample{};
    std::uint64_t units = 0;       // at most the limit
    std::uint64_t block_read = 0;  // of the home's stream, if `home` is this node
    std::uint64_t delivery = 0;    // position in the step, if `to` is this node
  };

  struct Counts {
    std::uint64_t parcels = 0;
    std::uint64_t samples = 0;
    std::uint64_t units = 0;
  };

  // `limit`: units of samples that a home holds for others.
  EpochParcels(std::uint32_t node, std::uint32_t nodes, std::uint64_t limit);

  // A sample that is drawn at its home. *reads: the number of the stream's reads so far.
  void Send(const Sent& sent, Step* step, std::uint64_t* reads);
  // Sends what every home holds.
  void FlushAll(Step* step, std::uint64_t* reads);
  // Sorts the step's parcels. Call after its last one.
  static void Sort(Step* step);

  [[nodiscard]] const Counts& sent() const { return sent_; }
  [[nodiscard]] const Counts& received() const { return received_; }
  [[nodiscard]] std::uint64_t held_units() const { return held_[node_]; }  // for others
  // The most units that this node held for others, and of a parcel that arrived, together, since
  // this was last called. A parcel is gone when the next one arrives.
  std::uint64_t TakePeak() { return std::exchange(peak_, held_[node_]); }

 private:
  struct Arriving {
    SampleId sample{};
    std::uint64_t delivery = 0;
  };

  void Flush(std::uint32_t home, Step* step, std::uint64_t* reads);
  void SendOwn(Step* step);
  void Receive(std::uint32_t home, Step* step, std::uint64_t* reads);

  const std::uint32_t node_;
  const std::uint64_t limit_;
  std::vector<std::uint64_t> held_;              // units that each home holds for others
  std::vector<std::vector<Release>> outgoing_;   // to each node
  std::vector<std::vector<Arriving>> arriving_;  // from each home
  std::vector<std::uint64_t> arriving_units_;    // from each home
  std::vector<std::uint64_t> sent_parcels_;      // to each node
  std::vector<std::uint64_t> received_parcels_;  // from each home
  Counts sent_;
  Counts received_;
  std::uint64_t peak_ = 0;
};

}  // namespace headrace
