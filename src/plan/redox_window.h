#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/redox_layout.h"

namespace headrace {

// A sample in memory, and the read that brought it.
struct RedoxResident {
  std::uint32_t sample = 0;
  std::uint32_t read = 0;  // of the epoch, in the order of issue

  friend bool operator==(const RedoxResident&, const RedoxResident&) = default;
};

// The requesters' side of the `redox` order's prefetching: what each node holds of the others'
// slots, and which of its coming requests a home may serve ahead.
//
// The papers slide a window of (slot) marks over the requests of a node to a home, and look at
// every request in it each time. A mark that outlives a shift is a place that the requester still
// holds; so a request's chances only change when its slot is filled at home, a place of it is freed
// at the requester, or it enters the window. Only slots to which that happened are looked at.
//
// Memory, for each node: 4 bytes for each of its requests, twice, and 13 for each slot and 8 for
// each place of the whole layout.
class RedoxWindow {
 public:
  struct Candidate {
    std::uint32_t rank = 0;  // among the requests of the node to this home
    std::uint32_t slot = 0;
  };

  // `reach` requests are in a window, the one that is served among them.
  RedoxWindow(std::shared_ptr<const RedoxLayout> layout, std::uint32_t nodes, std::uint32_t reach);

  // An epoch begins: every request to another node is added, in order, before anything else.
  void Clear();
  void Add(std::uint32_t node, std::uint32_t slot) { lane(node, slot).requests.push_back(slot); }
  void Seal();

  // `node` makes its next request, for `slot` of another home.
  void Request(std::uint32_t node, std::uint32_t slot);

  // What `node` holds of a slot of another home, in order of arrival but for Take().
  [[nodiscard]] std::span<RedoxResident> Held(std::uint32_t node, std::uint32_t slot);
  // The last takes the place of the one that leaves.
  RedoxResident Take(std::uint32_t node, std::uint32_t slot, std::uint32_t index);
  void Put(std::uint32_t node, std::uint32_t slot, RedoxResident resident);

  // A sample has come to a place of `slot` at its home.
  void Filled(std::uint32_t slot);

  // The requests of `node` that may be served ahead with the one for `slot` just made, by rank.
  // `at_home[s]` samples are in slot s of its home. Those that are not served go to Defer().
  std::span<const Candidate> Due(std::uint32_t node, std::uint32_t slot,
                                 std::span<const std::uint32_t> at_home);
  void Defer(std::uint32_t node, std::uint32_t slot) { Look(node, slot); }

 private:
  // Requests of a node to a home.
  struct Lane {
    std::vector<std::uint32_t> requests;  // their slots
    std::uint32_t made = 0;
    std::uint32_t seen = 0;              // have been in a window
    std::vector<std::uint32_t> to_look;  // slots, each once
  };
  // Of a node and all slots.
  struct Node {
    std::vector<std::uint32_t> ranks;  // of its requests, slot by slot, each list ended by kEnd
    std::vector<std::uint32_t> next;   // of each slot: where in `ranks` its coming requests begin
    std::vector<std::uint32_t> held;   // of each slot
    std::vector<std::uint8_t> looked;  // of each slot: whether it is in Lane::to_look
    std::vector<RedoxResident> places;
  };

  [[nodiscard]] Lane& lane(std::uint32_t node, std::uint32_t slot) {
    return lanes_[std::size_t{node} * nodes_.size() + layout_->virtual_of(slot).home];
  }
  void Look(std::uint32_t node, std::uint32_t slot);

  const std::shared_ptr<const RedoxLayout> layout_;
  const std::uint32_t reach_;
  std::vector<Node> nodes_;
  std::vector<Lane> lanes_;
  std::vector<Candidate> due_;
};

}  // namespace headrace
