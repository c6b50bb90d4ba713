#include "plan/papers/redox/redox_window.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

// Prefetches a slot this many requests before it is needed.
constexpr std::uint32_t kAhead = 8;

}  // namespace

RedoxWindow::RedoxWindow(std::shared_ptr<const RedoxLayout> layout, std::uint32_t nodes,
                         std::uint32_t reach)
    : layout_(std::move(layout)),
      reach_(reach),
      nodes_(nodes),
      lanes_(std::size_t{nodes} * nodes),
      slots_(layout_->slots().size() * nodes),
      places_(std::size_t{layout_->place_count()} * nodes) {}

void RedoxWindow::Clear() {
  for (Lane& each : lanes_) {
    each.requests.clear();
    each.to_look.clear();
    each.made = 0;
    each.seen = 0;
  }
  std::ranges::fill(slots_, Slot{});
}

void RedoxWindow::Seal() {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const auto node = static_cast<std::uint32_t>(i / nodes_);
    lane.after.resize(lane.requests.size());
    for (auto rank = static_cast<std::uint32_t>(lane.requests.size()); rank-- > 0;) {
      if (rank >= kAhead) __builtin_prefetch(&of(node, lane.requests[rank - kAhead]), 1);
      lane.after[rank] = std::exchange(of(node, lane.requests[rank]).next, rank);
    }
  }
}

void RedoxWindow::Request(std::uint32_t node, std::uint32_t slot) {
  Lane& asked = lane(node, slot);
  HEADRACE_CHECK(asked.requests[asked.made] == slot);
  Slot& mine = of(node, slot);
  if (mine.held == 0) mine.next = asked.after[mine.next];
  ++asked.made;
}

std::span<RedoxResident> RedoxWindow::Held(std::uint32_t node, std::uint32_t slot) {
  return std::span(places_).subspan(FirstPlace(node, slot), of(node, slot).held);
}

RedoxResident RedoxWindow::Take(std::uint32_t node, std::uint32_t slot, std::uint32_t index) {
  const std::span<RedoxResident> held = Held(node, slot);
  const RedoxResident taken = held[index];
  held[index] = held.back();
  Slot& mine = of(node, slot);
  --mine.held;
  Lane& asked = lane(node, slot);
  if (mine.next < asked.seen) Look(mine, asked, slot);
  return taken;
}

void RedoxWindow::Put(std::uint32_t node, std::uint32_t slot, RedoxResident resident) {
  Slot& mine = of(node, slot);
  HEADRACE_CHECK(mine.held < layout_->slots()[slot].places);
  ++mine.held;
  mine.next = lane(node, slot).after[mine.next];
  Held(node, slot).back() = resident;
}

void RedoxWindow::Filled(std::uint32_t slot) {
  const std::uint32_t home = layout_->slots()[slot].home;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    Slot& its = of(node, slot);
    Lane& asked = lanes_[std::size_t{node} * nodes_ + home];
    if (its.next < asked.seen) Look(its, asked, slot);  // The home itself has no requests.
  }
}

std::span<const RedoxWindow::Candidate> RedoxWindow::Due(std::uint32_t node, std::uint32_t slot,
                                                         const RedoxPlaces& homes) {
  Lane& asked = lane(node, slot);
  const auto count = static_cast<std::uint32_t>(asked.requests.size());
  const auto end = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::uint64_t{asked.made} - 1 + reach_, count));
  for (asked.seen = std::max(asked.seen, asked.made); asked.seen < end; ++asked.seen) {
    if (asked.seen + 2 * kAhead < count) {
      const std::uint32_t soon = asked.requests[asked.seen + 2 * kAhead];
      Expect(soon);
      __builtin_prefetch(&layout_->slots()[soon]);
      homes.ExpectSlot(soon);
      homes.Expect(asked.requests[asked.seen + kAhead]);
    }
    const std::uint32_t entering = asked.requests[asked.seen];
    Look(of(node, entering), asked, entering);
  }
  due_.clear();
  for (const std::uint32_t each : asked.to_look) {
    Slot& mine = of(node, each);
    mine.to_look = 0;
    // There is no need to check that the request being served conflicts, too: its sample has freed
    // a place at home, and the node held none, so there is room for all that the home has.
    const std::uint32_t free = layout_->slots()[each].places - mine.held;
    std::uint32_t room = std::min(free, homes.held()[each]);
    for (std::uint32_t rank = mine.next; room > 0 && rank < end; rank = asked.after[rank]) {
      due_.push_back({.rank = rank, .slot = each});
      --room;
    }
  }
  asked.to_look.clear();
  std::ranges::sort(due_, {}, &Candidate::rank);
  return due_;
}

}  // namespace headrace
