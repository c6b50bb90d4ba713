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

// The uses from now on as far as they were looked at: a stream read ahead as far as somebody asks.
// Uses are numbered 0, 1, 2, ... in the order of the stream; those of one block are linked, each to
// the next. Either the uses of one node or of all.
//
// Memory: 12 bytes a use that was looked at and has not been passed, rounded up to a power of two
// of them; 16 bytes a block. Not thread-safe.
class UseWindow {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  struct Step {
    Position at;
    std::uint64_t first = 0;  // its uses are [first, end)
    std::uint64_t end = 0;
    std::vector<std::uint64_t> node_ends;  // of uses, with all nodes
  };

  // `only`: the node whose uses count.
  UseWindow(std::unique_ptr<UseStream> stream, std::uint32_t block_count,
            std::optional<std::uint32_t> only)
      : stream_(std::move(stream)), only_(only), ends_(block_count) {
    Resize(64);
  }

  // Looks one step further, if one lies before `limit`.
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

  // Whether the run ends with the last step that was looked at.
  [[nodiscard]] bool ended() const { return ended_; }
  // The steps looked at that were not passed.
  [[nodiscard]] const std::deque<Step>& steps() const { return steps_; }
  // Uses [begin, end) were looked at and not passed.
  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }
  // Any window fits into as many numbers: a power of two that grows.
  [[nodiscard]] std::uint64_t size() const { return uses_.size(); }

  [[nodiscard]] std::uint32_t Block(std::uint64_t use) const { return uses_[use & mask_].block; }
  [[nodiscard]] std::uint32_t Node(std::uint64_t use) const { return uses_[use & mask_].node; }
  // The next use of the same block; kNone: none was seen.
  [[nodiscard]] std::uint64_t After(std::uint64_t use) const {
    const std::uint32_t distance = uses_[use & mask_].next;
    return distance == 0 ? kNone : use + distance;
  }
  // The first use of a block from begin() on; kNone: none was seen.
  [[nodiscard]] std::uint64_t First(std::uint32_t block) const { return ends_[block].first; }
  // Whose they are; only where there is one. So the next use itself need not be touched.
  [[nodiscard]] std::uint32_t NodeAfter(std::uint64_t use) const {
    return uses_[use & mask_].next_node;
  }
  [[nodiscard]] std::uint32_t FirstNode(std::uint32_t block) const {
    return ends_[block].first_node;
  }

  // Uses of the last step looked at that are the first from begin() on of their block.
  [[nodiscard]] const std::vector<std::uint64_t>& fresh() const { return fresh_; }

  // Says that the block of a use to come, if it is one, will be asked for soon.
  void Expect(std::uint64_t use) const {
    if (use >= end_) return;
    __builtin_prefetch(&ends_[Block(use)]);
  }
  // How many uses before it is asked for that is worth saying.
  static constexpr std::uint64_t kAhead = 8;

  // Passes use begin().
  void Pass() {
    const std::uint64_t after = After(begin_);
    Ends& ends = ends_[Block(begin_)];
    ends.first_node = NodeAfter(begin_);
    ends.span -= static_cast<std::uint32_t>(after - begin_);  // Means nothing after the last.
    ends.first = after;
    ++begin_;
  }
  // Forgets the first step, all of whose uses were passed.
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
      for (const std::uint32_t block : blocks) HEADRACE_CHECK(block < ends_.size());
      // Blocks lie anywhere: what is touched next is asked for in time.
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i + 2 * kAhead < blocks.size()) __builtin_prefetch(&ends_[blocks[i + 2 * kAhead]]);
        if (i + kAhead < blocks.size()) {
          const Ends& ends = ends_[blocks[i + kAhead]];
          __builtin_prefetch(&uses_[(ends.first + ends.span) & mask_]);
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
    const auto of_node = static_cast<std::uint16_t>(node);
    uses_[use & mask_] = {.block = block, .node = of_node};
    Ends& ends = ends_[block];
    if (ends.first == kNone) {
      fresh_.push_back(use);
      ends = {.first = use, .first_node = node};
      return;
    }
    const std::uint64_t last = ends.first + ends.span;
    uses_[last & mask_].next = static_cast<std::uint32_t>(use - last);
    uses_[last & mask_].next_node = of_node;
    ends.span = static_cast<std::uint32_t>(use - ends.first);
  }

  void Resize(std::uint64_t size) {
    HEADRACE_CHECK(size <= std::uint64_t{1} << 32);  // Distances have 32 bits.
    std::vector<Use> uses(size);
    for (std::uint64_t use = begin_; use < end_; ++use) uses[use & (size - 1)] = uses_[use & mask_];
    uses_ = std::move(uses);
    mask_ = size - 1;
  }

  struct Use {
    std::uint32_t block = 0;
    std::uint32_t next = 0;  // how much further the block's next use is; 0: not seen
    std::uint16_t node = 0;  // whose use it is
    std::uint16_t next_node = 0;
  };
  struct Ends {
    std::uint64_t first = kNone;  // use of the block from begin() on
    std::uint32_t span = 0;       // to the last that was looked at, if there is a first
    std::uint32_t first_node = 0;
  };

  const std::unique_ptr<UseStream> stream_;
  const std::optional<std::uint32_t> only_;
  StepUses peek_;
  bool peeked_ = false;  // whether peek_ is a step that was not taken in yet
  bool ended_ = false;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t mask_ = 0;
  std::deque<Step> steps_;
  std::vector<Use> uses_;   // by number modulo size()
  std::vector<Ends> ends_;  // of each block
  std::vector<std::uint64_t> fresh_;
};

}  // namespace headrace::placement
