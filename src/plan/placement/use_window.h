#pragma once

#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "plan/placement/uses.h"

namespace headrace::placement {

// The future uses that were read so far: a stream read ahead on demand. Uses are numbered 0, 1, 2,
// ... in the order of the stream; each use links to the next one of its block. Covers either the
// uses of one node or of all.
//
// Memory: 8 bytes a use in the window, with all nodes 10, rounded up to a power of two of them; 4
// bytes a block, with First() 8. Small on purpose: blocks are accessed at random, and each table
// that does not fit a processor's caches costs a miss a use.
// Thread safety: none.
class UseWindow {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  struct Step {
    Position at;
    std::uint64_t first = 0;  // its uses are [first, end)
    std::uint64_t end = 0;
    std::vector<std::uint64_t> node_ends;  // ends of each node's uses, with all nodes
  };

  // `only`: the node whose uses count. `firsts`: whether First() will be called.
  UseWindow(std::unique_ptr<UseStream> stream, std::uint32_t block_count,
            std::optional<std::uint32_t> only, bool firsts)
      : stream_(std::move(stream)),
        only_(only),
        last_(block_count),
        first_(firsts ? block_count : 0) {
    Resize(64);
  }

  // First() will not be called any more.
  void ForgetFirsts() { first_ = {}; }

  // Reads one step further, if there is one before `limit`.
  bool Extend(Position limit) {
    if (ended_) return false;
    if (!peeked_ && !stream_->Next(peek_)) {
      ended_ = true;
      return false;
    }
    peeked_ = true;
    const Position at = peek_.at;
    if (at.epoch > limit.epoch || (at.epoch == limit.epoch && at.step >= limit.step)) return false;
    Append();
    peeked_ = false;
    return true;
  }

  // Whether the run ends with the last step that was read.
  [[nodiscard]] bool ended() const { return ended_; }
  // The steps in the window.
  [[nodiscard]] const std::deque<Step>& steps() const { return steps_; }
  // The window holds uses [begin, end).
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

  // Uses of the last step read that are the first of their block from begin() on.
  [[nodiscard]] const std::vector<std::uint64_t>& fresh() const { return fresh_; }

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
  // Drops the first step, after all of its uses were passed.
  void PassStep() {
    HEADRACE_CHECK(begin_ == steps_.front().end);
    steps_.pop_front();
  }

 private:
  void Append() {
    fresh_.clear();
    Step step{.at = peek_.at, .first = end_};
    const auto add = [&](std::span<const std::uint32_t> blocks, std::uint32_t node) {
      if (end_ + blocks.size() - begin_ > size()) {
        Resize(std::bit_ceil(end_ + blocks.size() - begin_));
      }
      for (const std::uint32_t block : blocks) HEADRACE_CHECK(block < last_.size());
      // Blocks are accessed at random: prefetch the next ones.
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i + 2 * kAhead < blocks.size()) __builtin_prefetch(&last_[blocks[i + 2 * kAhead]]);
        if (i + kAhead < blocks.size()) {
          __builtin_prefetch(&uses_[last_[blocks[i + kAhead]] & mask_]);
        }
        AppendUse(blocks[i], node);
      }
    };
    if (only_.has_value()) {
      HEADRACE_CHECK(*only_ < peek_.node_ends.size());
      add(peek_.OfNode(*only_), *only_);
    } else {
      for (std::uint32_t node = 0; node < peek_.node_ends.size(); ++node) {
        add(peek_.OfNode(node), node);
        step.node_ends.push_back(end_);
      }
    }
    step.end = end_;
    steps_.push_back(std::move(step));
  }

  void AppendUse(std::uint32_t block, std::uint32_t node) {
    const std::uint64_t use = end_++;
    uses_[use & mask_] = {.block = block};
    if (!only_.has_value()) nodes_[use & mask_] = static_cast<std::uint16_t>(node);
    const std::uint64_t last = LiveBefore(last_[block], block, use);
    last_[block] = static_cast<std::uint32_t>(use);
    if (last != kNone) {
      uses_[last & mask_].next = static_cast<std::uint32_t>(use - last);
      return;
    }
    fresh_.push_back(use);
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

  const std::unique_ptr<UseStream> stream_;
  const std::optional<std::uint32_t> only_;
  StepUses peek_;
  bool peeked_ = false;  // whether peek_ is a step that was not added yet
  bool ended_ = false;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t mask_ = 0;
  std::deque<Step> steps_;
  std::vector<Use> uses_;             // by number modulo size()
  std::vector<std::uint16_t> nodes_;  // the node of each use, with all nodes
  // For each block the low bits of a use's number: see Live().
  std::vector<std::uint32_t> last_;   // the last that was read
  std::vector<std::uint32_t> first_;  // the first from begin() on; empty: not kept
  std::vector<std::uint64_t> fresh_;
};

}  // namespace headrace::placement
