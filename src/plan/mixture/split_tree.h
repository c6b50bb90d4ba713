#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

// One position of a mixture: it takes the draw `number`, from 0, of a source.
struct Draw {
  std::uint32_t source = 0;
  std::uint64_t number = 0;

  friend bool operator==(const Draw&, const Draw&) = default;
};

// Divides positions 0, 1, 2, ... among sources by fixed weights, evenly: before every position each
// source has had its share, to less than 2 draws. Integer arithmetic: the same on every machine.
//
// A Huffman tree of two-way splits: the two lightest parts are joined, until one is left. Of the
// first n positions of a node its heavier child has floor(n p + 1/2), p its part of the node's
// weight; the lighter child has the rest. So a split adds at most 1/2 to a child's distance from
// its share, and hands on that of its own position, times the child's part. A source is then at
// most 1/2 (1 + w/w1 + w/w2 + ...) from its share, w its weight and w1, w2, ... those of the nodes
// above it, without the root. As parts are joined by weight, wk is at least the (k+1)-th Fibonacci
// number times w; so the sum is at most 3.36, and the distance 1.68. The largest measured is 1.3.
//
// Memory: 48 bytes a source. Thread safety: const methods from any thread.
class SplitTree {
 public:
  // At most 2^61 in all.
  using Weights = std::span<const std::uint64_t>;
  // Positions, and numbers of draws, are below this.
  static constexpr std::uint64_t kPositionsMax = std::uint64_t{1} << 62;

  // At least one weight must not be 0; a source of weight 0 has no draw.
  explicit SplitTree(Weights weights);

  // Takes O(depth): about log2(1 / the source's part of the weights), at most 87.
  [[nodiscard]] Draw At(std::uint64_t position) const;

  // The draws at `first` and the positions after it; fewer than 2^32. Takes about 2 ns a draw and
  // level.
  void Draws(std::uint64_t first, std::span<Draw> draws) const;

  // The draws of `source` before `position`. Takes O(depth).
  [[nodiscard]] std::uint64_t CountBefore(std::uint32_t source, std::uint64_t position) const;
  // The same of all sources, one number each. Takes O(sources).
  void CountsBefore(std::uint64_t position, std::span<std::uint64_t> counts) const;

  // Where `source` has the draw `number`: the inverse of At(). kPositionsMax: nowhere below it.
  // Takes O(depth).
  [[nodiscard]] std::uint64_t PositionOf(Draw draw) const;

 private:
  // A child is a node, or ~source.
  using Child = std::int32_t;
  struct Node {
    std::uint64_t left_weight = 0;
    std::uint64_t weight = 0;
    Child left = 0;
    Child right = 0;
    Child parent = kNoNode;
  };
  static constexpr Child kNoNode = -1;  // as a parent

  [[nodiscard]] static std::uint64_t LeftBefore(const Node& node, std::uint64_t position);
  [[nodiscard]] std::vector<Child> PathTo(std::uint32_t source) const;

  std::vector<Node> nodes_;     // of two children; empty if one source has all positions
  std::vector<Child> parents_;  // of each source; kNoNode: none, or weight 0
  Child root_ = 0;
};

}  // namespace headrace
