#include "plan/redox_window.h"

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
    node.next.resize(slots);
    node.held.resize(slots);
    node.looked.resize(slots);
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
  for (Node& node : nodes_) {
    std::ranges::fill(node.held, 0U);
    std::ranges::fill(node.looked, std::uint8_t{0});
  }
}

void RedoxWindow::Seal() {
  const std::size_t homes = nodes_.size();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    Node& node = nodes_[n];
    const std::span<const Lane> lanes = std::span(lanes_).subspan(n * homes, homes);
    std::ranges::fill(node.next, 0U);
    for (const Lane& each : lanes) {
      for (const std::uint32_t slot : each.requests) ++node.next[slot];
    }
    std::uint32_t at = 0;
    for (std::uint32_t& next : node.next) at += std::exchange(next, at) + 1;
    node.ranks.assign(at, kEnd);
    for (const Lane& each : lanes) {
      for (std::uint32_t rank = 0; rank < each.requests.size(); ++rank) {
        node.ranks[node.next[each.requests[rank]]++] = rank;
      }
    }
    // Each now points at its list's end: back to the beginning, which is behind the end before.
    std::uint32_t begin = 0;
    for (std::uint32_t& next : node.next) begin = std::exchange(next, begin) + 1;
  }
}

void RedoxWindow::Request(std::uint32_t node, std::uint32_t slot) {
  Lane& of = lane(node, slot);
  HEADRACE_CHECK(of.requests[of.made] == slot);
  ++of.made;
  ++nodes_[node].next[slot];
}

std::span<RedoxResident> RedoxWindow::Held(std::uint32_t node, std::uint32_t slot) {
  Node& at = nodes_[node];
  return std::span(at.places).subspan(layout_->slots()[slot].first_place, at.held[slot]);
}

RedoxResident RedoxWindow::Take(std::uint32_t node, std::uint32_t slot, std::uint32_t index) {
  const std::span<RedoxResident> held = Held(node, slot);
  const RedoxResident taken = held[index];
  held[index] = held.back();
  --nodes_[node].held[slot];
  Look(node, slot);
  return taken;
}

void RedoxWindow::Put(std::uint32_t node, std::uint32_t slot, RedoxResident resident) {
  HEADRACE_CHECK(nodes_[node].held[slot] < layout_->slots()[slot].places);
  ++nodes_[node].held[slot];
  Held(node, slot).back() = resident;
}

void RedoxWindow::Look(std::uint32_t node, std::uint32_t slot) {
  std::uint8_t& looked = nodes_[node].looked[slot];
  if (looked != 0) return;
  looked = 1;
  lane(node, slot).to_look.push_back(slot);
}

void RedoxWindow::Filled(std::uint32_t slot) {
  const std::uint32_t home = layout_->virtual_of(slot).home;
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
    at.looked[each] = 0;
    // The request being served counts as a conflict, too, though it takes no place: so the papers.
    const std::uint32_t used = at.held[each] + (each == slot ? 1 : 0);
    const std::uint32_t places = layout_->slots()[each].places;
    const std::uint32_t room = used < places ? std::min(places - used, at_home[each]) : 0;
    const std::uint32_t first = at.next[each] + at.held[each];
    for (std::uint32_t i = 0; i < room && at.ranks[first + i] < end; ++i) {
      due_.push_back({.rank = at.ranks[first + i], .slot = each});
    }
  }
  of.to_look.clear();
  Look(node, slot);
  std::ranges::sort(due_, {}, &Candidate::rank);
  return due_;
}

}  // namespace headrace
