#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/placement/tiers.h"
#include "plan/placement/use_bits.h"
#include "plan/placement/use_window.h"

namespace headrace::placement {

// A copy of a block in a tier.
struct Copy {
  std::uint64_t need = UseWindow::kNone;  // the use that it is kept for
  bool last = false;                      // no other node has the block
};

struct Victim {
  std::uint32_t block;
  Copy copy;
};

// The copies in each tier of each node, by the use that each is kept for: spare ones and last ones
// in a list each. Finds those that are needed latest.
//
// A use in a list is in the window: remove it before the window passes it.
// Memory: 2.04 bits a use of the window's capacity, for each tier of each node.
// Thread safety: none.
// Ownership: `window` and `sizes` must outlive it.
class CopyLists {
 public:
  CopyLists(const UseWindow& window, const BlockSizes& sizes, std::span<const NodeTiers> nodes)
      : window_(window), sizes_(sizes) {
    for (const NodeTiers& tiers : nodes) {
      spare_.emplace_back(tiers.count());
      last_.emplace_back(tiers.count());
    }
  }

  void Add(std::uint32_t node, TierNumber tier, Copy copy) {
    if (size_ != window_.size()) Grow();
    (copy.last ? last_ : spare_)[node][tier].Set(copy.need);
  }
  void Remove(std::uint32_t node, TierNumber tier, Copy copy) {
    (copy.last ? last_ : spare_)[node][tier].Clear(copy.need);
  }

  // Adds copies of the tier to `victims` until their blocks have `units`: those needed later than
  // `copy`, farthest first. Spare ones, and only for a last copy then also last ones. False: they
  // have fewer.
  bool FindLater(std::uint32_t node, TierNumber tier, Copy copy, std::uint64_t units,
                 std::vector<Victim>& victims) {
    if (size_ != window_.size()) Grow();
    std::uint64_t found = 0;
    for (const bool last : {false, true}) {
      if (last && !copy.last) break;
      const UseBits& bits = (last ? last_ : spare_)[node][tier];
      std::uint64_t before = window_.end();
      while (found < units) {
        before = bits.Greatest(copy.need + 1, before);
        if (before == UseBits::kNone) break;
        victims.push_back({.block = window_.Block(before), .copy = {.need = before, .last = last}});
        found += sizes_.Of(victims.back().block);
      }
      if (found < units) continue;
      // The next block that needs room will usually take the next one.
      before = bits.Greatest(copy.need + 1, before);
      if (before != UseBits::kNone) window_.ExpectAt(before);
      return true;
    }
    return false;
  }

  // Prefetches for an Add() of a copy for this use.
  [[gnu::always_inline]] void Expect(std::uint32_t node, std::uint64_t use) const {
    for (const UseBits& last : last_[node]) last.Expect(use);
    if (last_.size() == 1) return;  // One node has no spare copies.
    for (const UseBits& spare : spare_[node]) spare.Expect(use);
  }

 private:
  void Grow() {
    size_ = window_.size();
    for (auto* lists : {&spare_, &last_}) {
      for (std::vector<UseBits>& tiers : *lists) {
        for (UseBits& bits : tiers) bits.Grow(size_, window_.begin());
      }
    }
  }

  const UseWindow& window_;
  const BlockSizes& sizes_;
  std::uint64_t size_ = 0;                   // of each list: the window's, when it was last used
  std::vector<std::vector<UseBits>> spare_;  // [node][tier]
  std::vector<std::vector<UseBits>> last_;
};

}  // namespace headrace::placement
