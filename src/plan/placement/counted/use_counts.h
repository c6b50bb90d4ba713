#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/placement/uses.h"

namespace headrace::placement {

// How often each node uses each block in a period of the run: in a table, or in lists by node and
// by block, which are smaller where a node uses few of the blocks.
//
// Memory: the table 2 bytes a block and node, and 4 bytes a block that a listed node uses; lists 8
// bytes a use and 8 a block, without by_block 4 bytes a use.
// Thread safety: none.
class UseCounts {
 public:
  static constexpr std::uint16_t kMost = std::numeric_limits<std::uint16_t>::max();  // and more

  // `listed`: the nodes whose uses UsedBy() gives. `by_block`: whether UsersOf() will be called.
  UseCounts(std::uint32_t blocks, std::vector<bool> listed, bool lists, bool by_block)
      : nodes_(static_cast<std::uint32_t>(listed.size())),
        blocks_(blocks),
        listed_(std::move(listed)),
        lists_(lists),
        by_block_(by_block),
        table_(lists ? 0 : std::size_t{blocks} * nodes_),
        used_(nodes_) {}

  void Clear() {
    std::ranges::fill(table_, std::uint16_t{0});
    most_ = 0;
    for (std::vector<std::uint32_t>& blocks : used_) blocks.clear();
  }

  // Adds the uses of a step.
  void Add(const StepUses& uses) {
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      const std::span<const std::uint32_t> own = uses.OfNode(node);
      if (lists_) {
        for (const std::uint32_t block : own) HEADRACE_CHECK(block < blocks_);
        used_[node].insert(used_[node].end(), own.begin(), own.end());
        continue;
      }
      for (const std::uint32_t block : own) {
        HEADRACE_CHECK(block < blocks_);
        std::uint16_t& count = table_[std::size_t{block} * nodes_ + node];
        if (count == 0 && listed_[node]) used_[node].push_back(block);
        if (count != kMost) ++count;
        most_ = std::max(most_, count);
      }
    }
  }

  // After the last Add(), before UsersOf().
  void Close() {
    if (!lists_ || !by_block_) return;
    ends_.assign(std::size_t{blocks_} + 1, 0);
    for (const std::vector<std::uint32_t>& blocks : used_) {
      for (const std::uint32_t block : blocks) ++ends_[block + 1];
    }
    for (std::size_t block = 0; block < blocks_; ++block) ends_[block + 1] += ends_[block];
    users_.resize(ends_.back());
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      for (const std::uint32_t block : used_[node]) users_[ends_[block]++] = node;
    }
  }
  // After the last UsersOf().
  void ForgetUsers() {
    ends_ = {};
    users_ = {};
  }

  // Of the table: uses of a block by a node, and the most of all.
  [[nodiscard]] std::uint16_t Of(std::uint32_t node, std::uint32_t block) const {
    return table_[std::size_t{block} * nodes_ + node];
  }
  [[nodiscard]] std::uint16_t most() const { return most_; }

  // The blocks that a node uses, in the order of first use; in lists each again at every use.
  [[nodiscard]] std::span<const std::uint32_t> UsedBy(std::uint32_t node) const {
    return used_[node];
  }
  // Of lists: the nodes that use a block, ascending, each once a use.
  [[nodiscard]] std::span<const std::uint32_t> UsersOf(std::uint32_t block) const {
    const std::uint64_t first = block == 0 ? 0 : ends_[block - 1];
    return std::span(users_).subspan(first, ends_[block] - first);
  }
  // Prefetches for UsersOf().
  [[gnu::always_inline]] void ExpectUsers(std::uint32_t block) const {
    __builtin_prefetch(&ends_[block]);
  }

 private:
  const std::uint32_t nodes_;
  const std::uint32_t blocks_;
  const std::vector<bool> listed_;
  const bool lists_;
  const bool by_block_;
  std::vector<std::uint16_t> table_;  // [block][node]
  std::uint16_t most_ = 0;
  std::vector<std::vector<std::uint32_t>> used_;  // by node
  std::vector<std::uint64_t> ends_;               // by block: the end of its part of users_
  std::vector<std::uint32_t> users_;
};

}  // namespace headrace::placement
