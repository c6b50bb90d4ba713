#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace::placement {

// The future uses that were read so far. Uses are numbered 0, 1, 2, ... in the order of their
// stream; each use links to the next one of its block. Covers either the uses of one node or of
// all.
//
// Memory: 8 bytes a use in the window, with all nodes 10, rounded up to a power of two of them; 4
// bytes a block, with First() 8. Small on purpose: blocks are accessed at random, and each table
// that does not fit a processor's caches costs a miss a use.
// Thread safety: none.
class UseWindow {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // `only`: the node whose uses count. `firsts`: whether First() will be called.
  UseWindow(std::uint32_t block_count, std::optional<std::uint32_t> only, bool firsts)
      : only_(only), last_(block_count), first_(firsts ? block_count : 0) {
    Resize(64);
  }

  // First() will not be called any more.
  void ForgetFirsts() { first_ = {}; }

  // Adds uses of `node`. Those that are the first of their block from begin() on are added to
  // `fresh`, too.
  void Append(std::span<const std::uint32_t> blocks, std::uint32_t node,
              std::vector<std::uint64_t>& fresh) {
    if (end_ + blocks.size() - begin_ > size()) {
      Resize(std::bit_ceil(end_ + blocks.size() - begin_));
    }
    for (const std::uint32_t block : blocks) HEADRACE_CHECK(block < last_.size());
    // Blocks are accessed at random: prefetch the next ones.
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i + 2 * kAhead < blocks.size()) __builtin_prefetch(&last_[blocks[i + 2 * kAhead]]);
      if (i + kAhead < blocks.size()) __builtin_prefetch(&uses_[last_[blocks[i + kAhead]] & mask_]);
      AppendUse(blocks[i], node, fresh);
    }
  }

  // The node whose uses it holds; std::nullopt: those of all.
  [[nodiscard]] std::optional<std::uint32_t> only() const { return only_; }
  // It holds uses [begin, end).
  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }
  // The capacity of the window: a power of two that grows.
  [[nodiscard]] std::uint64_t size() const { return uses_.size(); }

  [[nodiscard]] std::uint32_t Block(std::uint64_t use) const { return uses_[use & mask_].block; }
  // The node of a use.
  [[nodiscard]] std::uint32_t Node(std::uint64_t use) const {
    return only_.has_value() ? *only_ : nodes_[use & mask_];
  }
  // The next use of the same block; kNone: none was read.
  [[nodiscard]] std::uint64_t After(std::uint64_t use) const {
    const std::uint32_t distance = uses_[use & mask_].next;
    return distance == 0 ? kNone : use + distance;
  }
  // The first use of a block from begin() on; kNone: none was read.
  [[nodiscard]] std::uint64_t First(std::uint32_t block) const {
    return Live(first_[block], block);
  }

  // Inlined always: GCC 12 drops calls of functions that do nothing but prefetch.
  //
  // Prefetches for a Pass() of this use.
  [[gnu::always_inline]] void Expect(std::uint64_t use) const {
    if (!first_.empty()) __builtin_prefetch(&first_[Block(use)]);
  }
  // Prefetches for an After() of this use.
  [[gnu::always_inline]] void ExpectAt(std::uint64_t use) const {
    __builtin_prefetch(&uses_[use & mask_]);
    if (!only_.has_value()) __builtin_prefetch(&nodes_[use & mask_]);
  }

  // Passes use begin().
  void Pass() {
    if (!first_.empty() && After(begin_) != kNone) {
      first_[Block(begin_)] = static_cast<std::uint32_t>(After(begin_));
    }
    ++begin_;
  }

 private:
  void AppendUse(std::uint32_t block, std::uint32_t node, std::vector<std::uint64_t>& fresh) {
    const std::uint64_t use = end_++;
    uses_[use & mask_] = {.block = block};
    if (!only_.has_value()) nodes_[use & mask_] = static_cast<std::uint16_t>(node);
    const std::uint64_t last = LiveBefore(last_[block], block, use);
    last_[block] = static_cast<std::uint32_t>(use);
    if (last != kNone) {
      uses_[last & mask_].next = static_cast<std::uint32_t>(use - last);
      return;
    }
    fresh.push_back(use);
    if (!first_.empty()) first_[block] = static_cast<std::uint32_t>(use);
  }

  // The use of the window whose number has these low bits, if it is of this block; otherwise kNone.
  // Tables hold only these bits, and entries of passed uses stay in them: a passed use is in no
  // window, and the next use of the block overwrites the entry.
  [[nodiscard]] std::uint64_t Live(std::uint32_t low, std::uint32_t block) const {
    return LiveBefore(low, block, end_);
  }
  [[nodiscard]] std::uint64_t LiveBefore(std::uint32_t low, std::uint32_t block,
                                         std::uint64_t end) const {
    const std::uint64_t use = begin_ + (low - static_cast<std::uint32_t>(begin_));
    return use < end && Block(use) == block ? use : kNone;
  }

  void Resize(std::uint64_t size) {
    HEADRACE_CHECK(size <= std::uint64_t{1} << 32);  // Distances have 32 bits.
    std::vector<Use> uses(size);
    for (std::uint64_t use = begin_; use < end_; ++use) uses[use & (size - 1)] = uses_[use & mask_];
    uses_ = std::move(uses);
    if (!only_.has_value()) {
      std::vector<std::uint16_t> nodes(size);
      for (std::uint64_t use = begin_; use < end_; ++use) {
        nodes[use & (size - 1)] = nodes_[use & mask_];
      }
      nodes_ = std::move(nodes);
    }
    mask_ = size - 1;
  }

  struct Use {
    std::uint32_t block = 0;
    std::uint32_t next = 0;  // distance to the block's next use; 0: not seen
  };
  // Prefetches a table entry this many uses before it is needed.
  static constexpr std::uint64_t kAhead = 12;

  const std::optional<std::uint32_t> only_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t mask_ = 0;
  std::vector<Use> uses_;             // by number modulo size()
  std::vector<std::uint16_t> nodes_;  // the node of each use, with all nodes
  // For each block the low bits of a use's number: see Live().
  std::vector<std::uint32_t> last_;   // the last that was read
  std::vector<std::uint32_t> first_;  // the first from begin() on; empty: not kept
};

}  // namespace headrace::placement
