#include "papers/redox/redox_window.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

// Prefetches a slot this many requests before it is needed.
constexpr std::uint32_t kAsksAhead = 8;

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
    each.due.clear();
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
      if (rank >= kAsksAhead) __builtin_prefetch(&of(node, lane.requests[rank - kAsksAhead]), 1);
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

std::span<const RedoxResident> RedoxWindow::Held(std::uint32_t node, std::uint32_t slot) const {
  const std::uint32_t held = slots_[std::size_t{slot} * nodes_ + node].held;
  return std::span(places_).subspan(FirstPlace(node, slot), held);
}

std::vector<RedoxWindow::Mark> RedoxWindow::Marks(std::uint32_t node, std::uint32_t home) const {
  const Lane& lane = lanes_[std::size_t{node} * nodes_ + home];
  std::vector<Mark> marks;
  if (lane.made == 0) return marks;
  const std::uint32_t newest = lane.made - 1;
  const std::size_t end = std::min<std::size_t>(lane.requests.size(), std::size_t{newest} + reach_);
  for (std::uint32_t rank = newest; rank < end; ++rank) {
    const std::uint32_t slot = lane.requests[rank];
    const std::uint32_t next = slots_[std::size_t{slot} * nodes_ + node].next;
    marks.push_back({.rank = rank, .slot = slot, .sent = rank == newest || next > rank});
  }
  return marks;
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

void RedoxWindow::Shift(std::uint32_t node, std::uint32_t slot, const RedoxPlaces& homes) {
  Lane& asked = lane(node, slot);
  const auto count = static_cast<std::uint32_t>(asked.requests.size());
  const std::uint32_t end = EndOf(asked);
  for (asked.seen = std::max(asked.seen, asked.made); asked.seen < end; ++asked.seen) {
    if (asked.seen + 2 * kAsksAhead < count) {
      const std::uint32_t soon = asked.requests[asked.seen + 2 * kAsksAhead];
      Expect(soon);
      __builtin_prefetch(&layout_->slots()[soon]);
      homes.ExpectSlot(soon);
      homes.Expect(asked.requests[asked.seen + kAsksAhead]);
    }
    const std::uint32_t entering = asked.requests[asked.seen];
    Look(of(node, entering), asked, entering);
  }
  for (const std::uint32_t each : asked.to_look) {
    Slot& its = of(node, each);
    if (IsDue(its, each, end, homes)) {
      PushDue(asked, its.next, each);
    } else {
      its.to_look = 0;
    }
  }
  asked.to_look.clear();
}

std::optional<RedoxWindow::Candidate> RedoxWindow::FirstDue(std::uint32_t node, std::uint32_t slot,
                                                            const RedoxPlaces& homes) {
  Lane& asked = lane(node, slot);
  const std::uint32_t end = EndOf(asked);
  while (!asked.due.empty()) {
    const Candidate first = asked.due.front();
    Slot& its = of(node, first.slot);
    const bool is_due = IsDue(its, first.slot, end, homes);
    if (is_due && its.next == first.rank) return first;
    std::ranges::pop_heap(asked.due, std::ranges::greater(), &Candidate::rank);
    asked.due.pop_back();
    if (is_due) {
      PushDue(asked, its.next, first.slot);
    } else {
      its.to_look = 0;
    }
  }
  return std::nullopt;
}

}  // namespace headrace
