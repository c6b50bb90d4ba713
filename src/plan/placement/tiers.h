#pragma once

// Shared by the planners of this folder: sizes of blocks, which tier of a node has which block, and
// counters. For placements only.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/block_map.h"
#include "plan/placement/placement.h"

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

// Which tier of one node has which block, and the changes since the last TakeOps(). A block is in
// one tier at most, and no tier exceeds its capacity. Nodes that are planned together share a table
// in which the bytes of one block are adjacent: a lookup of one node is usually followed by one of
// the others.
// Memory: 1 byte a block.
// Thread safety: none.
class NodeTiers {
 public:
  // `recorded`: whether changes are kept for TakeOps().
  NodeTiers(const std::shared_ptr<const BlockSizes>& sizes,
            std::vector<std::uint64_t> capacity_units, bool recorded);

  NodeTiers(NodeTiers&&) = default;
  NodeTiers& operator=(NodeTiers&&) = default;
  NodeTiers(const NodeTiers&) = delete;
  NodeTiers& operator=(const NodeTiers&) = delete;
  ~NodeTiers() = default;

  // One for each node, empty; keeps the changes of node `recorded`. `numbered`: inserts are
  // numbered, in its samples, at 4 bytes a block and node; null: they are not.
  static std::vector<NodeTiers> MakeAll(
      const std::shared_ptr<const BlockSizes>& sizes,
      const std::vector<std::vector<std::uint64_t>>& capacity_units, std::uint32_t recorded,
      const std::shared_ptr<const BlockMap>& numbered = nullptr);

  [[nodiscard]] TierNumber count() const { return static_cast<TierNumber>(capacity_.size()); }
  [[nodiscard]] TierNumber Of(std::uint32_t block) const { return tier_of_[block * stride_]; }
  [[nodiscard]] bool Has(std::uint32_t block) const { return Of(block) != kNoTier; }
  // Prefetches the entry of a block.
  [[gnu::always_inline]] void Expect(std::uint32_t block) const {
    __builtin_prefetch(&tier_of_[block * stride_]);
  }
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
  [[nodiscard]] TierNumber WithRoom(std::uint32_t block) const;
  // Whether no tier has room for any block.
  [[nodiscard]] bool Full() const;

  // Places a block that is held at the start; not a change.
  void Hold(std::uint32_t block, TierNumber tier) { Place(block, Of(block), tier); }
  // To another tier, which must have room, or to kNoTier.
  void Move(std::uint32_t block, TierNumber to) { Move(block, Of(block), to); }
  // The same if the block is known to be in `from`: its entry is only written.
  void Move(std::uint32_t block, TierNumber from, TierNumber to);

  // See Placement::InsertNumber(); 0 if inserts are not numbered.
  [[nodiscard]] std::uint32_t InsertNumber(std::uint32_t block) const {
    return insert_numbers_.empty() ? 0 : insert_numbers_[block];
  }

  // A number for what is where: it does not depend on the order of the changes. 0: nothing is held.
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

  [[nodiscard]] std::vector<CacheOp> TakeOps() { return std::exchange(ops_, {}); }

 private:
  NodeTiers(std::shared_ptr<const BlockSizes> sizes, std::vector<std::uint64_t> capacity_units,
            bool recorded, std::shared_ptr<std::vector<TierNumber>> table, std::size_t stride,
            std::size_t place);
  void Place(std::uint32_t block, TierNumber from, TierNumber to);

  std::shared_ptr<const BlockSizes> sizes_;
  std::vector<std::uint64_t> capacity_;
  bool recorded_;
  std::vector<std::uint64_t> free_;
  std::shared_ptr<std::vector<TierNumber>> table_;
  std::size_t stride_;   // from one block to the next
  TierNumber* tier_of_;  // entry of block 0, in table_
  std::vector<CacheOp> ops_;
  std::uint64_t sum_ = 0;
  std::shared_ptr<const BlockMap> numbered_;   // null: inserts are not numbered
  std::vector<std::uint32_t> insert_numbers_;  // by block
  std::uint32_t samples_inserted_ = 0;         // modulo 2^32
};

// The base of every placement: its request, its node's tiers, its counters. Not thread-safe.
class Planner : public Placement {
 public:
  [[nodiscard]] std::map<std::string, double> counters() const override;

 protected:
  explicit Planner(PlacementRequest request);

  // Looks up the uses of a step in the current tiers. Call before any change.
  PlacedStep Begin(Position at, std::span<const std::uint32_t> blocks);
  // Takes the changes since Begin(). An insert of a block that the step does not use is `ahead`.
  void Finish(PlacedStep& step, NodeTiers& own);

  // The source of a block for the node now.
  [[nodiscard]] virtual PlannedUse Locate(std::uint32_t block) const = 0;

  // Prefetches for a Begin() that follows soon.
  [[gnu::always_inline]] void ExpectUse(std::uint32_t block) const {
    __builtin_prefetch(&marks_[block / kMarked]);
  }

  // The node's own uses of a step.
  [[nodiscard]] std::span<const std::uint32_t> OwnUses(const StepUses& step) const;

  // Makes the tiers of a node with the blocks held at the start.
  [[nodiscard]] NodeTiers MakeTiers(std::uint32_t node) const;
  [[nodiscard]] NodeTiers MakeEmptyTiers(std::uint32_t node) const;
  // The tiers of all nodes.
  [[nodiscard]] std::vector<NodeTiers> MakeAllTiers() const;

  // Calls visit(block, tier) for what `node` holds at the start.
  template <typename Visit>
  void ForHeld(std::uint32_t node, const Visit& visit) const {
    if (node >= request_.held.size()) return;
    for (std::size_t tier = 0; tier < request_.held[node].size(); ++tier) {
      for (const std::uint32_t block : request_.held[node][tier]) {
        visit(block, static_cast<TierNumber>(tier));
      }
    }
  }

  [[nodiscard]] const PlacementRequest& request() const { return request_; }
  [[nodiscard]] std::uint32_t node() const { return request_.node; }
  [[nodiscard]] std::uint32_t nodes() const {
    return static_cast<std::uint32_t>(request_.capacity_units.size());
  }
  [[nodiscard]] const BlockSizes& sizes() const { return *sizes_; }
  [[nodiscard]] std::uint32_t block_count() const { return sizes_->count(); }

 private:
  struct Kind {
    double uses = 0;
    double units = 0;
  };

  // Two bits of marks for each block.
  static constexpr std::uint32_t kMarked = 32;  // blocks a word
  static constexpr std::uint64_t kInUse = 1;    // used by the node, or held, and not loaded ahead
                                                // since
  static constexpr std::uint64_t kUsed = 2;     // by the current step
  static constexpr std::uint32_t Shift(std::uint32_t block) { return block % kMarked * 2; }

  const PlacementRequest request_;
  const std::shared_ptr<const BlockSizes> sizes_;
  std::vector<std::uint64_t> marks_;
  std::vector<std::uint32_t> step_used_;  // by the current step
  Kind local_;
  Kind peer_;
  Kind storage_;
  Kind reuse_;
  Kind inserted_;
  Kind ahead_;
  Kind moved_;
  Kind evicted_;
};

// The base of placements that plan all nodes together: their tiers, and what these cover.
class NodesPlanner : public Planner {
 public:
  [[nodiscard]] std::map<std::string, double> counters() const override;
  [[nodiscard]] std::optional<BlockHolder> Holder(std::uint32_t block,
                                                  std::uint32_t from) const override;
  [[nodiscard]] std::uint32_t InsertNumber(std::uint32_t block, std::uint32_t node) const override {
    return nodes_[node].InsertNumber(block);
  }
  [[nodiscard]] std::uint64_t OwnersSum() const override;

 protected:
  explicit NodesPlanner(PlacementRequest request)
      : Planner(std::move(request)), nodes_(MakeAllTiers()) {}

  // The tier of the node, or of the next node after it, cyclically, that has the block: see
  // PlacementRequest::fastest_peer.
  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override;

  std::vector<NodeTiers> nodes_;
};

// Errors: those of PlacementFactory::Make about requests
Status CheckRequest(const PlacementRequest& request, std::string_view policy);

// A factory for placements made from a checked request and a stream of uses, or by their Make().
template <typename Policy>
class FactoryOf final : public PlacementFactory {
 public:
  FactoryOf(std::string_view name, bool clairvoyant, bool keeps_blocks = true)
      : name_(name), clairvoyant_(clairvoyant), keeps_blocks_(keeps_blocks) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool clairvoyant() const override { return clairvoyant_; }
  [[nodiscard]] bool keeps_blocks() const override { return keeps_blocks_; }
  [[nodiscard]] Result<std::unique_ptr<Placement>> Make(PlacementRequest request) const override {
    HEADRACE_RETURN_IF_ERROR(CheckRequest(request, name_));
    if constexpr (requires { Policy::Make(std::move(request)); }) {
      return Policy::Make(std::move(request));
    } else {
      HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
      return std::unique_ptr<Placement>(
          std::make_unique<Policy>(std::move(request), std::move(stream)));
    }
  }

 private:
  const std::string_view name_;
  const bool clairvoyant_;
  const bool keeps_blocks_;
};

// Each is in the file of its name; Placements() is the table.
const PlacementFactory& None();
const PlacementFactory& Lru();
const PlacementFactory& Pinned();
const PlacementFactory& FirstTouch();
const PlacementFactory& Frequency();
const PlacementFactory& Coordinated();
const PlacementFactory& Reuse();
const PlacementFactory& Belady();

}  // namespace headrace::placement
