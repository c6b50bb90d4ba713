#pragma once

// The units of blocks, and the room that the tiers of a node have for them. For placements only.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/ids.h"
#include "plan/block_map.h"

namespace headrace::placement {

// Units of every block. Immutable; made in O(samples).
// Memory: 4 bytes a block, none if all blocks have the same size.
class BlockSizes {
 public:
  // Stands for this many and more: such a block is never kept.
  static constexpr std::uint64_t kTooLarge = 0xffff'ffff;

  explicit BlockSizes(const BlockMap& blocks);

  [[nodiscard]] std::uint64_t Of(std::uint32_t block) const {
    return table_.empty() ? each_ : table_[block];
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::uint64_t least() const { return least_; }

 private:
  std::uint32_t count_ = 0;
  std::uint64_t each_ = 0;   // if table_ is empty
  std::uint64_t least_ = 0;  // of the smallest block
  std::vector<std::uint32_t> table_;
};

// The room of a node's tiers, fastest first.
// Thread safety: none.
class TierRoom {
 public:
  TierRoom(std::shared_ptr<const BlockSizes> sizes, std::vector<std::uint64_t> capacity_units)
      : sizes_(std::move(sizes)), capacity_(std::move(capacity_units)), free_(capacity_) {}

  [[nodiscard]] TierNumber count() const { return static_cast<TierNumber>(capacity_.size()); }
  [[nodiscard]] std::uint64_t Free(TierNumber tier) const { return free_[tier]; }
  [[nodiscard]] std::uint64_t Capacity(TierNumber tier) const { return capacity_[tier]; }

  // Whether an empty tier could hold it.
  [[nodiscard]] bool CanHold(TierNumber tier, std::uint32_t block) const {
    const std::uint64_t units = sizes_->Of(block);
    return units != BlockSizes::kTooLarge && units <= capacity_[tier];
  }
  [[nodiscard]] bool HasRoom(TierNumber tier, std::uint32_t block) const {
    const std::uint64_t units = sizes_->Of(block);
    return units != BlockSizes::kTooLarge && units <= free_[tier];
  }
  // The fastest tier with room; kNoTier: none has room.
  [[nodiscard]] TierNumber WithRoom(std::uint32_t block) const {
    for (TierNumber tier = 0; tier < count(); ++tier) {
      if (HasRoom(tier, block)) return tier;
    }
    return kNoTier;
  }
  // Whether no tier has room for any block.
  [[nodiscard]] bool Full() const {
    return std::ranges::all_of(free_, [&](std::uint64_t free) { return free < sizes_->least(); });
  }

  // The tier must have room.
  void Take(TierNumber tier, std::uint64_t units) {
    HEADRACE_CHECK(units <= free_[tier]);
    free_[tier] -= units;
  }
  void Return(TierNumber tier, std::uint64_t units) { free_[tier] += units; }

 protected:
  [[nodiscard]] const BlockSizes& sizes() const { return *sizes_; }

 private:
  std::shared_ptr<const BlockSizes> sizes_;
  std::vector<std::uint64_t> capacity_;
  std::vector<std::uint64_t> free_;
};

}  // namespace headrace::placement
