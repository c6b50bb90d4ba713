#include "plan/mixture/split_tree.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

// Of a child that is ~source.
std::size_t SourceOf(std::int32_t child) {
  const std::int32_t source = ~child;
  return static_cast<std::size_t>(source);
}

constexpr std::uint64_t kWeightMax = std::uint64_t{1} << 61;

}  // namespace

SplitTree::SplitTree(Weights weights) : parents_(weights.size(), kNoNode) {
  // Weight, the time of joining, which makes the tree unique, and the node or source.
  using Part = std::tuple<std::uint64_t, std::size_t, Child>;
  std::priority_queue<Part, std::vector<Part>, std::greater<>> parts;
  std::uint64_t total = 0;
  for (std::size_t source = 0; source < weights.size(); ++source) {
    HEADRACE_CHECK(weights[source] <= kWeightMax - total);
    total += weights[source];
    if (weights[source] > 0) parts.emplace(weights[source], source, ~static_cast<Child>(source));
  }
  HEADRACE_CHECK(!parts.empty());
  nodes_.reserve(parts.size() - 1);
  const auto take = [&parts] {
    const Part part = parts.top();
    parts.pop();
    return part;
  };
  while (parts.size() > 1) {
    const auto [light, light_since, lighter] = take();
    const auto [heavy, heavy_since, heavier] = take();
    const auto made = static_cast<Child>(nodes_.size());
    nodes_.push_back(
        {.left_weight = heavy, .weight = light + heavy, .left = heavier, .right = lighter});
    for (const Child child : {lighter, heavier}) {
      (child >= 0 ? nodes_[static_cast<std::size_t>(child)].parent : parents_[SourceOf(child)]) =
          made;
    }
    parts.emplace(light + heavy, weights.size() + nodes_.size(), made);
  }
  root_ = std::get<Child>(parts.top());
}

std::uint64_t SplitTree::LeftBefore(const Node& node, std::uint64_t position) {
  const Uint128 twice = Uint128{2} * node.left_weight * position + node.weight;
  return static_cast<std::uint64_t>(twice / (Uint128{2} * node.weight));
}

Draw SplitTree::At(std::uint64_t position) const {
  Child at = root_;
  while (at >= 0) {
    const Node& node = nodes_[static_cast<std::size_t>(at)];
    const std::uint64_t left = LeftBefore(node, position);
    const bool is_left = LeftBefore(node, position + 1) > left;
    at = is_left ? node.left : node.right;
    position = is_left ? left : position - left;
  }
  return {.source = static_cast<std::uint32_t>(SourceOf(at)), .number = position};
}

void SplitTree::Draws(std::uint64_t first, std::span<Draw> draws) const {
  // The positions that a node has of these are adjacent, too: from `first` on, one for each of
  // places[begin, end), which are ascending positions in `draws`.
  struct Part {
    Child of = 0;
    std::uint64_t first = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::vector<std::uint32_t> places(draws.size());
  std::vector<std::uint32_t> right(draws.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::uint32_t>(i);
  std::vector<Part> parts = {{.of = root_, .first = first, .begin = 0, .end = draws.size()}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    if (part.begin == part.end) continue;
    if (part.of < 0) {
      const auto source = static_cast<std::uint32_t>(SourceOf(part.of));
      for (std::size_t i = part.begin; i < part.end; ++i) {
        draws[places[i]] = {.source = source, .number = part.first + (i - part.begin)};
      }
      continue;
    }
    const Node& node = nodes_[static_cast<std::size_t>(part.of)];
    const std::uint64_t left_before = LeftBefore(node, part.first);
    // LeftBefore(n) is `twice` / (2 weight); from n to n + 1 `twice` grows by 2 left_weight.
    const Uint128 twice = Uint128{2} * node.left_weight * part.first + node.weight;
    auto rest = static_cast<std::uint64_t>(twice - Uint128{left_before} * 2 * node.weight);
    std::size_t end = part.begin;
    std::size_t others = 0;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      rest += 2 * node.left_weight;
      if (rest >= 2 * node.weight) {
        rest -= 2 * node.weight;
        places[end++] = places[i];
      } else {
        right[others++] = places[i];
      }
    }
    std::copy_n(right.begin(), others, places.begin() + static_cast<std::ptrdiff_t>(end));
    parts.push_back({.of = node.left, .first = left_before, .begin = part.begin, .end = end});
    parts.push_back(
        {.of = node.right, .first = part.first - left_before, .begin = end, .end = part.end});
  }
}

std::vector<SplitTree::Child> SplitTree::PathTo(std::uint32_t source) const {
  std::vector<Child> path;
  for (Child at = parents_[source]; at != kNoNode;
       at = nodes_[static_cast<std::size_t>(at)].parent) {
    path.push_back(at);
  }
  return path;
}

std::uint64_t SplitTree::CountBefore(std::uint32_t source, std::uint64_t position) const {
  const Child leaf = ~static_cast<Child>(source);
  const std::vector<Child> path = PathTo(source);
  if (path.empty()) return root_ == leaf ? position : 0;
  for (std::size_t i = path.size(); i-- > 0;) {
    const Node& node = nodes_[static_cast<std::size_t>(path[i])];
    const std::uint64_t left = LeftBefore(node, position);
    position = node.left == (i == 0 ? leaf : path[i - 1]) ? left : position - left;
  }
  return position;
}

void SplitTree::CountsBefore(std::uint64_t position, std::span<std::uint64_t> counts) const {
  std::fill(counts.begin(), counts.end(), 0);
  if (root_ < 0) {
    counts[SourceOf(root_)] = position;
    return;
  }
  std::vector<std::uint64_t> of_nodes(nodes_.size());
  of_nodes[static_cast<std::size_t>(root_)] = position;
  for (std::size_t i = nodes_.size(); i-- > 0;) {  // A node is made after its children.
    const Node& node = nodes_[i];
    const std::uint64_t left = LeftBefore(node, of_nodes[i]);
    const auto set = [&](Child child, std::uint64_t count) {
      (child >= 0 ? of_nodes[static_cast<std::size_t>(child)] : counts[SourceOf(child)]) = count;
    };
    set(node.left, left);
    set(node.right, of_nodes[i] - left);
  }
}

std::uint64_t SplitTree::PositionOf(Draw draw) const {
  const Child leaf = ~static_cast<Child>(draw.source);
  const std::vector<Child> path = PathTo(draw.source);
  if (path.empty()) return root_ == leaf ? draw.number : kPositionsMax;
  Uint128 position = draw.number;
  Child from = leaf;
  for (const Child at : path) {
    if (position >= kPositionsMax) return kPositionsMax;
    const Node& node = nodes_[static_cast<std::size_t>(at)];
    // The least n with LeftBefore(n + 1) > position, or with n + 1 - LeftBefore(n + 1) > position.
    const Uint128 twice = (2 * position + 1) * node.weight;
    if (from == node.left) {
      const Uint128 step = Uint128{2} * node.left_weight;
      position = (twice + step - 1) / step - 1;
    } else {
      position = twice / (Uint128{2} * (node.weight - node.left_weight));
    }
    from = at;
  }
  return position >= kPositionsMax ? kPositionsMax : static_cast<std::uint64_t>(position);
}

}  // namespace headrace
