#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/papers/redox/redox_layout.h"
#include "plan/papers/redox/redox_places.h"

namespace headrace {

// The requesters' part of prefetching in the `redox` order: the samples of other nodes' slots that
// each node holds, and the coming requests that a home may serve early.
//
// The papers slide a window of (slot) marks over the requests of a node to a home, and check every
// request in it each time. A mark that remains after a shift is a place that the requester still
// holds. So the answer for a request changes only when its slot is filled at home, when the
// requester frees a place of the slot, or when the request enters the window. Only such slots are
// checked.
//
// Memory, for each node: 8 bytes for each of its requests, and 12 for each slot and 8 for each
// place of the whole layout.
// Thread safety: none.
class RedoxWindow {
 public:
  struct Candidate {
    std::uint32_t rank = 0;  // among the requests of the node to this home
    std::uint32_t slot = 0;
  };

  // A window has `reach` requests, including the one that is being served.
  RedoxWindow(std::shared_ptr<const RedoxLayout> layout, std::uint32_t nodes, std::uint32_t reach);

  // Begins an epoch. Add every request to another node next, in order, before any other call.
  void Clear();
  void Add(std::uint32_t node, std::uint32_t slot) { lane(node, slot).requests.push_back(slot); }
  void Seal();

  // `node` makes its next request, for `slot` of another home.
  void Request(std::uint32_t node, std::uint32_t slot);

  // The samples that `node` holds of a slot of another home, in order of arrival until a Take().
  [[nodiscard]] std::span<RedoxResident> Held(std::uint32_t node, std::uint32_t slot);
  // Removes a sample; the last one takes its place.
  RedoxResident Take(std::uint32_t node, std::uint32_t slot, std::uint32_t index);
  void Put(std::uint32_t node, std::uint32_t slot, RedoxResident resident);

  // Call when a sample has come to a place of `slot` at its home.
  void Filled(std::uint32_t slot);

  // The requests of `node` that may be served early with its newest request, for `slot`, by rank.
  // `at_home[s]` samples are in slot s of its home. Call Defer() for those that are not served.
  std::span<const Candidate> Due(std::uint32_t node, std::uint32_t slot,
                                 std::span<const std::uint32_t> at_home);
  void Defer(std::uint32_t node, std::uint32_t slot) { Look(node, slot); }

 private:
  // Requests of a node to a home.
  struct Lane {
    std::vector<std::uint32_t> requests;  // their slots
    std::uint32_t made = 0;
    std::uint32_t seen = 0;              // requests that were in a window
    std::vector<std::uint32_t> to_look;  // slots to check, each once
  };
  // Of a node and a slot.
  struct Slot {
    std::uint32_t next = 0;  // start of its coming requests in Node::ranks
    std::uint32_t held = 0;
    bool to_look = false;  // whether it is in Lane::to_look
  };
  // Of a node and all slots.
  struct Node {
    std::vector<std::uint32_t> ranks;  // of its requests, slot by slot, each list ended by kEnd
    std::vector<Slot> slots;
    std::vector<RedoxResident> places;
  };

  [[nodiscard]] Lane& lane(std::uint32_t node, std::uint32_t slot) {
    return lanes_[std::size_t{node} * nodes_.size() + layout_->slots()[slot].home];
  }
  void Look(std::uint32_t node, std::uint32_t slot);

  const std::shared_ptr<const RedoxLayout> layout_;
  const std::uint32_t reach_;
  std::vector<Node> nodes_;
  std::vector<Lane> lanes_;
  std::vector<Candidate> due_;
};

}  // namespace headrace
