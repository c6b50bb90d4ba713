#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_places.h"

namespace headrace {

// The requesters' part of prefetching in the `redox` order: the samples of other nodes' slots that
// each node holds, and the coming requests that a home may serve early.
//
// The papers slide a window of (slot) marks over the requests of a node to a home, and check every
// request in it each time. A mark that remains after a shift is a place that the requester still
// holds. So the answer for a request changes only when its slot is filled at home, when the
// requester frees a place of the slot, or when the request enters the window. Only such slots are
// checked, and of the first two kinds only those with a request in the window.
//
// Memory, for each node: 8 bytes for each of its requests, and 8 for each slot and each place of
// the whole layout. What all nodes have of a slot is adjacent.
// Thread safety: none.
class RedoxWindow {
 public:
  struct Candidate {
    std::uint32_t rank = 0;  // among the requests of the node to this home
    std::uint32_t slot = 0;
  };

  // A window has `reach` requests, including the one that is being served.
  RedoxWindow(std::shared_ptr<const RedoxLayout> layout, std::uint32_t nodes, std::uint32_t reach);

  // An entry of the window: a request, and whether its sample was sent: as its answer, if it is the
  // newest one, or along.
  struct Mark {
    std::uint32_t rank = 0;
    std::uint32_t slot = 0;
    bool sent = false;
  };

  // Begins an epoch. Add every request to another node next, in order, before any other call.
  void Clear();
  void Add(std::uint32_t node, std::uint32_t slot) { lane(node, slot).requests.push_back(slot); }
  void Seal();

  // Prefetches for what follows about a slot. Inlined always: GCC 12 drops calls of
  // functions that do nothing but prefetch.
  [[gnu::always_inline]] void Expect(std::uint32_t slot) const {
    __builtin_prefetch(&slots_[std::size_t{slot} * nodes_]);
  }

  // Whether `node` holds a sample of a slot. Then prefetches for a Take() of it.
  [[nodiscard]] [[gnu::always_inline]] bool ExpectHeld(std::uint32_t node,
                                                       std::uint32_t slot) const {
    if (slots_[std::size_t{slot} * nodes_ + node].held == 0) return false;
    __builtin_prefetch(&places_[FirstPlace(node, slot)]);
    return true;
  }

  // `node` makes its next request, for `slot` of another home.
  void Request(std::uint32_t node, std::uint32_t slot);

  // The samples that `node` holds of a slot of another home, in order of arrival until a Take().
  [[nodiscard]] std::span<RedoxResident> Held(std::uint32_t node, std::uint32_t slot);
  [[nodiscard]] std::span<const RedoxResident> Held(std::uint32_t node, std::uint32_t slot) const;
  // Removes a sample; the last one takes its place.
  RedoxResident Take(std::uint32_t node, std::uint32_t slot, std::uint32_t index);
  void Put(std::uint32_t node, std::uint32_t slot, RedoxResident resident);

  // Call when a sample has come to a place of `slot` at its home.
  void Filled(std::uint32_t slot);

  // Moves the window of `node` to its newest request, for `slot`. `homes` are the samples at the
  // homes of slots.
  void Shift(std::uint32_t node, std::uint32_t slot, const RedoxPlaces& homes);
  // The first of the coming requests in the window of the newest request, for `slot`, that may be
  // served early. After a Put() for it there may be another one; if it is not served it stays the
  // first. Amortized, each change of a slot is looked at once.
  std::optional<Candidate> FirstDue(std::uint32_t node, std::uint32_t slot,
                                    const RedoxPlaces& homes);

  // The window of the requests of `node` to `home`, from the newest on. To look at.
  [[nodiscard]] std::vector<Mark> Marks(std::uint32_t node, std::uint32_t home) const;

 private:
  static constexpr std::uint32_t kEnd = 0xffff'ffff;

  // Requests of a node to a home.
  struct Lane {
    std::vector<std::uint32_t> requests;  // their slots
    std::vector<std::uint32_t> after;     // the next request for the same slot, by rank; or kEnd
    std::uint32_t made = 0;
    std::uint32_t seen = 0;              // requests that were in a window
    std::vector<std::uint32_t> to_look;  // slots to check, each once
    // Of those that were checked and may be served, the first request: a heap with the lowest rank
    // on top. It may be outdated; its rank only grows.
    std::vector<Candidate> due;
  };
  // Of a node and a slot of another home.
  struct Slot {
    std::uint32_t next = kEnd;  // rank of the first coming request that no sample is held for
    std::uint32_t held : 31 = 0;
    std::uint32_t to_look : 1 = 0;  // whether it is in Lane::to_look or Lane::due
  };

  [[nodiscard]] Lane& lane(std::uint32_t node, std::uint32_t slot) {
    return lanes_[std::size_t{node} * nodes_ + layout_->slots()[slot].home];
  }
  [[nodiscard]] std::size_t FirstPlace(std::uint32_t node, std::uint32_t slot) const {
    const RedoxLayout::Slot& home = layout_->slots()[slot];
    return std::size_t{home.first_place} * nodes_ + std::size_t{home.places} * node;
  }
  [[nodiscard]] Slot& of(std::uint32_t node, std::uint32_t slot) {
    return slots_[std::size_t{slot} * nodes_ + node];
  }
  // The end of its window, by rank. It has made a request.
  [[nodiscard]] std::uint32_t EndOf(const Lane& lane) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{lane.made} - 1 + reach_, lane.requests.size()));
  }
  static void Look(Slot& of, Lane& lane, std::uint32_t slot) {
    if (of.to_look != 0) return;
    of.to_look = 1;
    lane.to_look.push_back(slot);
  }
  // Whether a request of `its` before rank `end` may be served.
  [[nodiscard]] bool IsDue(const Slot& its, std::uint32_t slot, std::uint32_t end,
                           const RedoxPlaces& homes) const {
    // There is no need to check that the request being served conflicts, too: its sample has freed
    // a place at home, and the node held none, so there is room for all that the home has.
    return its.next < end && homes.held()[slot] > 0 && layout_->slots()[slot].places > its.held;
  }
  static void PushDue(Lane& lane, std::uint32_t rank, std::uint32_t slot) {
    lane.due.push_back({.rank = rank, .slot = slot});
    std::ranges::push_heap(lane.due, std::ranges::greater(), &Candidate::rank);
  }

  const std::shared_ptr<const RedoxLayout> layout_;
  const std::uint32_t reach_;
  const std::uint32_t nodes_;
  std::vector<Lane> lanes_;            // [node][home]
  std::vector<Slot> slots_;            // [slot][node]
  std::vector<RedoxResident> places_;  // of each slot, its places of each node
};

}  // namespace headrace
