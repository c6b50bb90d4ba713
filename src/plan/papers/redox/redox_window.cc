#include "plan/papers/redox/redox_window.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

constexpr std::uint32_t kEnd = 0xffff'ffff;

}  // namespace

RedoxWindow::RedoxWindow(std::shared_ptr<const RedoxLayout> layout, std::uint32_t nodes,
                         std::uint32_t reach)
    : layout_(std::move(layout)), reach_(reach), nodes_(nodes), lanes_(std::size_t{nodes} * nodes) {
  const std::size_t slots = layout_->slots().size();
  for (Node& node : nodes_) {
    node.slots.resize(slots);
    node.places.resize(layout_->place_count());
  }
}

void RedoxWindow::Clear() {
  for (Lane& each : lanes_) {
    each.requests.clear();
    each.to_look.clear();
    each.made = 0;
    each.seen = 0;
  }
  for (Node& node : nodes_) std::ranges::fill(node.slots, Slot{});
}

void RedoxWindow::Seal() {
  const std::size_t homes = nodes_.size();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    Node& node = nodes_[n];
    const std::span<const Lane> lanes = std::span(lanes_).subspan(n * homes, homes);
    for (const Lane& each : lanes) {
      for (const std::uint32_t slot : each.requests) ++node.slots[slot].next;
    }
    std::uint32_t at = 0;
    for (Slot& each : node.slots) at += std::exchange(each.next, at) + 1;
    node.ranks.assign(at, kEnd);
    for (const Lane& each : lanes) {
      for (std::uint32_t rank = 0; rank < each.requests.size(); ++rank) {
        node.ranks[node.slots[each.requests[rank]].next++] = rank;
      }
    }
    // Each now points to the end of its list: move it back to the beginning, the end of the list
    // before.
    std::uint32_t begin = 0;
    for (Slot& each : node.slots) begin = std::exchange(each.next, begin) + 1;
  }
}

void RedoxWindow::Request(std::uint32_t node, std::uint32_t slot) {
  Lane& of = lane(node, slot);
  HEADRACE_CHECK(of.requests[of.made] == slot);
  ++of.made;
  ++nodes_[node].slots[slot].next;
}

std::span<RedoxResident> RedoxWindow::Held(std::uint32_t node, std::uint32_t slot) {
  Node& at = nodes_[node];
  return std::span(at.places).subspan(layout_->slots()[slot].first_place, at.slots[slot].held);
}

RedoxResident RedoxWindow::Take(std::uint32_t node, std::uint32_t slot, std::uint32_t index) {
  const std::span<RedoxResident> held = Held(node, slot);
  const RedoxResident taken = held[index];
  held[index] = held.back();
  --nodes_[node].slots[slot].held;
  Look(node, slot);
  return taken;
}

void RedoxWindow::Put(std::uint32_t node, std::uint32_t slot, RedoxResident resident) {
  HEADRACE_CHECK(nodes_[node].slots[slot].held < layout_->slots()[slot].places);
  ++nodes_[node].slots[slot].held;
  Held(node, slot).back() = resident;
}

void RedoxWindow::Look(std::uint32_t node, std::uint32_t slot) {
  bool& to_look = nodes_[node].slots[slot].to_look;
  if (to_look) return;
  to_look = true;
  lane(node, slot).to_look.push_back(slot);
}

void RedoxWindow::Filled(std::uint32_t slot) {
  const std::uint32_t home = layout_->slots()[slot].home;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (node != home) Look(node, slot);
  }
}

std::span<const RedoxWindow::Candidate> RedoxWindow::Due(std::uint32_t node, std::uint32_t slot,
                                                         std::span<const std::uint32_t> at_home) {
  Node& at = nodes_[node];
  Lane& of = lane(node, slot);
  const auto end = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::uint64_t{of.made} - 1 + reach_, of.requests.size()));
  for (of.seen = std::max(of.seen, of.made); of.seen < end; ++of.seen) {
    Look(node, of.requests[of.seen]);
  }
  due_.clear();
  for (const std::uint32_t each : of.to_look) {
    Slot& mine = at.slots[each];
    mine.to_look = false;
    // There is no need to check that the request being served conflicts, too: its sample has freed
    // a place at home, and the node held none, so there is room for all that the home has.
    const std::uint32_t free = layout_->slots()[each].places - mine.held;
    const std::uint32_t room = std::min(free, at_home[each]);
    const std::uint32_t first = mine.next + mine.held;
    for (std::uint32_t i = 0; i < room && at.ranks[first + i] < end; ++i) {
      due_.push_back({.rank = at.ranks[first + i], .slot = each});
    }
  }
  of.to_look.clear();
  std::ranges::sort(due_, {}, &Candidate::rank);
  return due_;
}

}  // namespace headrace
