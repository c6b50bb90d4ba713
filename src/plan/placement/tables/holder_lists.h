#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "headrace/ids.h"

namespace headrace::placement {

// Which tiers of which nodes have each block, as a list for each block: for many nodes, of which
// few have a block. A node has a block in one tier at most.
//
// Memory: 8 bytes a block; 4 bytes a copy of blocks with two copies and more, whose number is
// rounded up to a power of two.
// Cost: two accesses of memory; a change copies the list of the block at worst.
// Thread safety: none.
class HolderLists {
 public:
  static constexpr std::uint64_t kNodesMax = std::uint64_t{1} << 28;

  // A node with the block. Lists are sorted by node.
  class Entry {
   public:
    Entry() = default;
    Entry(std::uint32_t node, TierNumber tier) : bits_(node << 4 | tier) {}

    [[nodiscard]] std::uint32_t node() const { return bits_ >> 4; }
    [[nodiscard]] TierNumber tier() const { return static_cast<TierNumber>(bits_ & 7); }
    // A mark of the copy: see SetMark().
    [[nodiscard]] bool marked() const { return (bits_ & 8) != 0; }

   private:
    friend class HolderLists;
    std::uint32_t bits_ = 0;
  };

  explicit HolderLists(std::uint32_t blocks) : heads_(blocks) { free_.fill(kNone); }

  [[nodiscard]] std::span<const Entry> Of(std::uint32_t block) const {
    const Head& head = heads_[block];
    return {head.count == 1 ? &head.only : pool_.data() + head.first(), head.count};
  }
  // kNoTier: the node has it not.
  [[nodiscard]] TierNumber Of(std::uint32_t block, std::uint32_t node) const {
    const std::span<const Entry> list = Of(block);
    const std::size_t place = Place(list, node);
    return place < list.size() && list[place].node() == node ? list[place].tier() : kNoTier;
  }
  // The place in a list of the first entry from `node` on; its size: there is none.
  static std::size_t Place(std::span<const Entry> list, std::uint32_t node) {
    if (list.size() > 16) {
      const auto found = std::ranges::lower_bound(list, node, {}, &Entry::node);
      return static_cast<std::size_t>(found - list.begin());
    }
    std::size_t place = 0;
    while (place < list.size() && list[place].node() < node) ++place;
    return place;
  }

  // kNoTier: takes the node from the list. A copy that moves to another tier keeps its mark.
  void Set(std::uint32_t block, std::uint32_t node, TierNumber tier) {
    const std::span<Entry> list = List(block);
    const std::size_t place = Place(list, node);
    const bool there = place < list.size() && list[place].node() == node;
    if (tier == kNoTier) {
      if (there) Erase(block, place);
    } else if (there) {
      list[place].bits_ = (list[place].bits_ & ~std::uint32_t{7}) | tier;
    } else {
      HEADRACE_CHECK(tier < 8);
      Insert(block, place, Entry(node, tier));
    }
  }

  // Marks a copy, which is not marked when it is new; returns whether it was marked. False: the
  // node does not have the block.
  bool SetMark(std::uint32_t block, std::uint32_t node, bool mark) {
    const std::span<Entry> list = List(block);
    const std::size_t place = Place(list, node);
    if (place == list.size() || list[place].node() != node) return false;
    const bool was = list[place].marked();
    list[place].bits_ = (list[place].bits_ & ~std::uint32_t{8}) | (mark ? 8U : 0U);
    return was;
  }

  // Inlined always: GCC 12 drops calls of functions that do nothing but prefetch.
  //
  // Prefetches the head of a list.
  [[gnu::always_inline]] void Expect(std::uint32_t block) const {
    __builtin_prefetch(&heads_[block]);
  }
  // Prefetches the entries of a list whose head was prefetched before.
  [[gnu::always_inline]] void ExpectEntries(std::uint32_t block) const {
    __builtin_prefetch(Of(block).data());
  }

 private:
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  // The list of a block. One entry is in the head; more are in the pool, in an array as long as the
  // least power of two that holds them.
  struct Head {
    Entry only;  // the entry, or where the entries begin in the pool
    std::uint32_t count = 0;

    [[nodiscard]] std::uint32_t first() const { return count == 0 ? 0 : only.bits_; }
  };

  [[nodiscard]] std::span<Entry> List(std::uint32_t block) {
    Head& head = heads_[block];
    return {head.count == 1 ? &head.only : pool_.data() + head.first(), head.count};
  }

  void Insert(std::uint32_t block, std::size_t place, Entry entry) {
    Head& head = heads_[block];
    if (head.count == 0) {
      head = {.only = entry, .count = 1};
      return;
    }
    if (std::has_single_bit(head.count)) {  // The array is full.
      const std::uint32_t larger = Take(head.count * 2);
      const std::span<Entry> from = List(block);
      std::ranges::copy(from, pool_.begin() + larger);
      if (head.count > 1) Give(head.first(), head.count);
      head.only.bits_ = larger;
    }
    Entry* const list = pool_.data() + head.only.bits_;
    std::copy_backward(list + place, list + head.count, list + head.count + 1);
    list[place] = entry;
    ++head.count;
  }

  void Erase(std::uint32_t block, std::size_t place) {
    Head& head = heads_[block];
    if (head.count == 1) {
      head = {};
      return;
    }
    const std::uint32_t first = head.only.bits_;
    Entry* const list = pool_.data() + first;
    std::copy(list + place + 1, list + head.count, list + place);
    --head.count;
    if (head.count == 1) {
      head.only = *list;
      Give(first, 2);
    } else if (std::has_single_bit(head.count)) {
      const std::uint32_t smaller = Take(head.count);
      std::copy_n(pool_.begin() + first, head.count, pool_.begin() + smaller);
      Give(first, head.count * 2);
      head.only.bits_ = smaller;
    }
  }

  // An array in the pool; `size` is a power of two.
  std::uint32_t Take(std::uint32_t size) {
    std::uint32_t& free = free_[static_cast<std::size_t>(std::countr_zero(size))];
    if (free != kNone) {
      const std::uint32_t first = free;
      free = pool_[first].bits_;
      return first;
    }
    const std::size_t first = pool_.size();
    HEADRACE_CHECK(first + size < kNone);  // 16 GB of entries.
    pool_.resize(first + size);
    return static_cast<std::uint32_t>(first);
  }
  void Give(std::uint32_t first, std::uint32_t size) {
    std::uint32_t& free = free_[static_cast<std::size_t>(std::countr_zero(size))];
    pool_[first].bits_ = free;
    free = first;
  }

  std::vector<Head> heads_;  // by block
  std::vector<Entry> pool_;
  std::array<std::uint32_t, 32> free_{};  // arrays without a block, by size; linked by their first
                                          // entry
};

}  // namespace headrace::placement
