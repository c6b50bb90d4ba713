#pragma once

// Shared by the planners of this folder: which tier of a node has which block, and counters. For
// placements only.

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
#include "plan/placement/tables/holder_lists.h"
#include "plan/placement/tables/room.h"

namespace headrace::placement {

// Which tier of one node has which block, and the changes since the last TakeOps(). A block is in
// one tier at most, and no tier exceeds its capacity. Nodes that are planned together share a
// table: a lookup of one node is usually followed by one of the others.
// Memory: 1 byte a block in a table of bytes; that of HolderLists in lists.
// Thread safety: none.
class NodeTiers : public TierRoom {
 public:
  // `recorded`: whether changes are kept for TakeOps().
  NodeTiers(const std::shared_ptr<const BlockSizes>& sizes,
            std::vector<std::uint64_t> capacity_units, bool recorded);

  NodeTiers(NodeTiers&&) = default;
  NodeTiers& operator=(NodeTiers&&) = default;
  NodeTiers(const NodeTiers&) = delete;
  NodeTiers& operator=(const NodeTiers&) = delete;
  ~NodeTiers() = default;

  // One for each node, empty; keeps the changes of node `recorded`. They share `lists` or, if it is
  // null, a table in which the bytes of one block are adjacent. `numbered`: inserts are numbered,
  // in its samples, at 4 bytes a block and node; null: they are not.
  static std::vector<NodeTiers> MakeAll(
      const std::shared_ptr<const BlockSizes>& sizes,
      const std::vector<std::vector<std::uint64_t>>& capacity_units, std::uint32_t recorded,
      const std::shared_ptr<const BlockMap>& numbered = nullptr,
      const std::shared_ptr<HolderLists>& lists = nullptr);

  [[nodiscard, gnu::always_inline]] TierNumber Of(std::uint32_t block) const {
    if (tier_of_ == nullptr) [[unlikely]] {
      return OfLists(block);
    }
    return tier_of_[block * stride_];
  }
  [[nodiscard, gnu::always_inline]] bool Has(std::uint32_t block) const {
    return Of(block) != kNoTier;
  }
  // The tiers of all nodes that share a table of bytes: for each block one of each node.
  [[nodiscard]] const TierNumber* bytes() const { return table_->data(); }
  // Prefetches the entry of a block.
  [[gnu::always_inline]] void Expect(std::uint32_t block) const {
    if (tier_of_ == nullptr) [[unlikely]] {
      lists_->Expect(block);
    } else {
      __builtin_prefetch(&tier_of_[block * stride_]);
    }
  }

  // Places a block that is held at the start, or where nobody takes the ops; not a change.
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

  [[nodiscard]] bool recorded() const { return recorded_; }
  void Record() { recorded_ = true; }
  [[nodiscard]] std::span<const CacheOp> ops() const { return ops_; }
  [[nodiscard]] std::vector<CacheOp> TakeOps() { return std::exchange(ops_, {}); }

 private:
  using TierRoom::Return;
  using TierRoom::Take;

  NodeTiers(TierRoom room, bool recorded, std::uint32_t node, std::size_t stride,
            std::shared_ptr<std::vector<TierNumber>> table, std::shared_ptr<HolderLists> lists);
  void Place(std::uint32_t block, TierNumber from, TierNumber to);
  [[nodiscard]] TierNumber OfLists(std::uint32_t block) const;

  bool recorded_;
  std::uint32_t node_;
  std::size_t stride_;                              // of tier_of_, from one block to the next
  std::shared_ptr<std::vector<TierNumber>> table_;  // null: lists_ have the entries
  std::shared_ptr<HolderLists> lists_;
  TierNumber* tier_of_;  // entry of block 0, in table_
  std::vector<CacheOp> ops_;
  std::uint64_t sum_ = 0;
  std::shared_ptr<const BlockMap> numbered_;   // null: inserts are not numbered
  std::vector<std::uint32_t> insert_numbers_;  // by block
  std::uint32_t samples_inserted_ = 0;         // modulo 2^32
};

// Counts uses and ops for Placement::counters().
class Tally {
 public:
  // `again`: the copy in the node's tier was there since an earlier use, or was held at the start.
  void Use(const PlannedUse& use, std::uint64_t units, bool again) {
    const bool local = use.tier != kNoTier;
    (local ? local_ : use.at_peer ? peer_ : storage_).Add(units);
    if (local && again) reuse_.Add(units);
  }
  void Op(const CacheOp& op, std::uint64_t units) {
    (op.from == kNoTier ? inserted_ : op.to == kNoTier ? evicted_ : moved_).Add(units);
    if (op.ahead) ahead_.Add(units);
  }
  [[nodiscard]] std::map<std::string, double> counters() const;

 private:
  struct Kind {
    void Add(std::uint64_t of_block) {
      uses += 1;
      units += static_cast<double>(of_block);
    }
    double uses = 0;
    double units = 0;
  };

  Kind local_;
  Kind peer_;
  Kind storage_;
  Kind reuse_;
  Kind inserted_;
  Kind ahead_;
  Kind moved_;
  Kind evicted_;
};

// The base of every placement: its request, its node's tiers, its counters. Not thread-safe.
class Planner : public Placement {
 public:
  [[nodiscard]] std::map<std::string, double> counters() const override {
    return tally_.counters();
  }

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

  // Makes the node's tiers, with the blocks held at the start.
  [[nodiscard]] NodeTiers MakeTiers() const;

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
  [[nodiscard]] const std::shared_ptr<const BlockSizes>& shared_sizes() const { return sizes_; }
  [[nodiscard]] std::uint32_t block_count() const { return sizes_->count(); }

 private:
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
  Tally tally_;
};

// Errors: those of PlacementFactory::Make about requests
Status CheckRequest(const PlacementRequest& request, std::string_view policy);

// A factory for placements made from a checked request and a stream of uses, or by their Make().
template <typename Policy>
class FactoryOf : public PlacementFactory {
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
