#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/permutation.h"
#include "plan/placement/counted/use_counts.h"
#include "plan/placement/nodes_planner.h"
#include "plan/placement/tables/room.h"

namespace headrace::placement {

// A block in a tier of a plan.
struct Kept {
  std::uint32_t block = 0;
  TierNumber tier = kNoTier;
};

// What a node is to have, before it fills the rest of its room.
struct Share {
  TierRoom room;
  std::vector<Kept> kept;

  // Leaves the block in the tier that has it, `has`, or, if that has no room or is kNoTier, puts it
  // into the fastest one with room; returns whether there was any.
  bool Add(std::uint32_t block, std::uint64_t units, TierNumber has) {
    const bool stays = has != kNoTier && room.HasRoom(has, block);
    const TierNumber tier = stays ? has : room.WithRoom(block);
    if (tier == kNoTier) return false;
    room.Take(tier, units);
    kept.push_back({.block = block, .tier = tier});
    return true;
  }
};

// The plan for the tiers of one node at a time. Not thread-safe.
// Memory: 1 byte a block; 8 bytes a block that the node is to have.
class Wanted {
 public:
  // Of a period, whose moves are all due at its first step. The engine loses moves beyond
  // TierCache's kMovesMax: the samples are in no tier then.
  static constexpr std::uint64_t kMovedUpMax = 256;

  explicit Wanted(std::uint32_t blocks) : tier_of_(blocks, kNoTier) {}

  void Start(Share share) {
    for (const Kept& each : share_.kept) tier_of_[each.block] = kNoTier;
    share_ = std::move(share);
    for (const Kept& each : share_.kept) tier_of_[each.block] = each.tier;
  }
  bool Add(std::uint32_t block, std::uint64_t units, TierNumber has) {
    if (!share_.Add(block, units, has)) return false;
    tier_of_[block] = share_.kept.back().tier;
    return true;
  }
  // Once all are added: moves blocks up into room that is left, by their numbers, of kMovedUpMax
  // samples in all.
  void MoveUp(const BlockSizes& sizes, const BlockMap& blocks);
  [[nodiscard]] const TierRoom& room() const { return share_.room; }
  [[nodiscard]] TierNumber Of(std::uint32_t block) const { return tier_of_[block]; }
  [[gnu::always_inline]] void Expect(std::uint32_t block) const {
    __builtin_prefetch(&tier_of_[block]);
  }
  // All blocks of the plan, ascending.
  [[nodiscard]] std::vector<std::uint32_t> Blocks() const;

 private:
  std::vector<TierNumber> tier_of_;
  Share share_{.room = TierRoom(nullptr, {}), .kept = {}};
};

// The order in which a node takes equal blocks: a random permutation of the blocks. Not
// thread-safe.
class Draw {
 public:
  Draw(std::uint32_t blocks, std::uint64_t seed) : blocks_(blocks), seed_(seed) {}

  // Draws for a node; nothing is made before it is asked for. `shared`: several nodes have this
  // draw.
  void Start(std::uint64_t node, bool shared);
  void Forget() { Start(0, false); }
  // The blocks by place.
  [[nodiscard]] const Permutation& permutation();
  // Stores the places of `blocks`.
  void Places(std::span<const std::uint32_t> blocks, std::span<std::uint32_t> places);

 private:
  const std::uint32_t blocks_;
  const std::uint64_t seed_;
  std::uint64_t node_ = 0;
  bool shared_ = false;
  std::optional<Permutation> permutation_;
  std::vector<std::uint32_t> places_;  // of all blocks, if shared
  std::optional<EntryFinder> finder_;
};

// What `frequency` and `coordinated` have in common: what is kept for a period of the run depends
// on how often each node uses each block in it. Periods are horizon_epochs long; with one node one
// epoch, since an order uses every block once an epoch and a longer period adds no information.
//
// Memory: that of UseCounts, of Wanted, and of the tiers; with lists 4 bytes a copy more; while a
// period is planned 8 bytes a block more.
// Cost of a period: with lists by what the nodes use and hold, and for nodes whose draw matters
// about 10 ns a block; with a table by nodes times blocks.
class CountedPlanner : public SteppedPlanner {
 public:
  void Advance() final;

 protected:
  struct Rules {
    bool draws_by_node;  // or one draw for all
    bool stays;          // what a node has comes before all else, when it fills its room
    bool by_block;       // MostUses() and AnyFrom() are asked
  };

  CountedPlanner(PlacementRequest request, std::unique_ptr<UseStream> stream,
                 std::unique_ptr<UseStream> ahead, Rules rules);

  // Gives blocks to nodes before each fills its room. By node.
  virtual void Assign(std::vector<Share>& /*shares*/) {}
  // Whether the plan ends here: PlacementRequest::keep_going.
  [[nodiscard]] bool stopped() const { return request().keep_going && !request().keep_going(); }
  // The same, asked at one block of many. `i`: of a loop over blocks.
  [[nodiscard]] bool StoppedAt(std::uint64_t i) const { return i % 65'536 == 0 && stopped(); }
  // The draw of the period, if it is one for all.
  [[nodiscard]] Draw& draw() { return draw_; }

  // The most uses of the block by a node that has it, or not `has`, has not, below `limit`;
  // std::nullopt: there is no such node.
  [[nodiscard, gnu::always_inline]] std::optional<std::uint32_t> MostUses(std::uint32_t block,
                                                                          std::uint32_t limit,
                                                                          bool has) const {
    if (lists_ != nullptr) return MostInLists(block, limit, has);
    std::optional<std::uint32_t> most;
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      if (nodes_[each].Has(block) != has) continue;  // Before its count, which is far, too.
      const std::uint32_t uses = counts_->Of(each, block);
      if (uses < limit && uses >= most.value_or(0)) most = uses;
    }
    return most;
  }
  // Asks the nodes that use the block `uses` times and have it, or not `has`, have not, from node
  // `turn` on, cyclically, until take(node) returns true; returns whether one did.
  template <typename Take>
  bool AnyFrom(std::uint32_t block, std::uint32_t turn, std::uint32_t uses, bool has,
               const Take& take) const;
  // Prefetches for both, from lists.
  [[gnu::always_inline]] void ExpectNodes(std::uint32_t block) const {
    counts_->ExpectUsers(block);
    lists_->Expect(block);
  }

 private:
  // A node that uses or has a block.
  struct NodeUse {
    std::uint32_t node;
    std::uint32_t uses;
    bool has;
  };
  // A block that a node may keep.
  struct Candidate {
    std::uint32_t key;  // the higher the sooner
    std::uint32_t place;
    std::uint32_t block;
  };

  [[nodiscard]] bool OrdersInserts(std::uint32_t each) const;
  void Count();
  [[nodiscard]] std::uint32_t Key(std::uint32_t uses, bool has, std::uint32_t levels) const {
    return rules_.stays ? uses + (has ? levels : 0) : uses * 2 + (has ? 1 : 0);
  }
  void Fill(std::uint32_t each);
  void FillFromLists(std::uint32_t each);
  void FillLevel(std::uint32_t each, std::span<Candidate> level);
  [[nodiscard]] bool OrderMatters(std::uint32_t each, std::span<const Candidate> level) const;
  bool Add(std::uint32_t each, std::uint32_t block) {
    return wanted_.Add(block, sizes().Of(block), nodes_[each].Of(block));
  }
  void Change(std::uint32_t each);
  void Exchange(NodeTiers& tiers, const std::vector<std::uint32_t>* had);
  // Calls visit(block) for the blocks of a list or, if it is null, for all.
  template <typename Visit>
  void ForBlocks(const std::vector<std::uint32_t>* list, const Visit& visit) const {
    if (list != nullptr) {
      for (const std::uint32_t block : *list) visit(block);
    } else {
      for (std::uint32_t block = 0; block < block_count(); ++block) visit(block);
    }
  }
  [[nodiscard]] std::optional<std::uint32_t> MostInLists(std::uint32_t block, std::uint32_t limit,
                                                         bool has) const;
  // The nodes that use or have a block, ascending, from lists; valid until the next call.
  std::span<const NodeUse> NodesOf(std::uint32_t block) const;

  const std::unique_ptr<UseStream> ahead_;  // the same steps, read to the end of the period
  const Rules rules_;
  std::optional<UseCounts> counts_;  // made with the first step
  Draw draw_;
  Wanted wanted_;                            // of the node that is planned
  std::optional<std::uint64_t> period_end_;  // first epoch after it
  StepUses seen_;
  bool peeked_ = false;                           // whether seen_ is a step of the next period
  std::vector<std::vector<std::uint32_t>> kept_;  // by node, ascending; with lists
  std::vector<Candidate> candidates_;             // of one node
  mutable std::vector<NodeUse> node_uses_;        // of one block
};

template <typename Take>
bool CountedPlanner::AnyFrom(std::uint32_t block, std::uint32_t turn, std::uint32_t uses, bool has,
                             const Take& take) const {
  const bool lists = lists_ != nullptr;
  const std::span<const NodeUse> list = lists ? NodesOf(block) : std::span<const NodeUse>();
  if (lists && (has || uses > 0)) {
    const auto first = std::ranges::lower_bound(list, turn, {}, &NodeUse::node) - list.begin();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const NodeUse& each = list[(static_cast<std::size_t>(first) + i) % list.size()];
      if (each.uses == uses && each.has == has && take(each.node)) return true;
    }
    return false;
  }
  for (std::uint32_t i = 0; i < nodes(); ++i) {
    const std::uint32_t each = (turn + i) % nodes();
    const bool fits = lists ? !std::ranges::binary_search(list, each, {}, &NodeUse::node)
                            : counts_->Of(each, block) == uses && nodes_[each].Has(block) == has;
    if (fits && take(each)) return true;
  }
  return false;
}

}  // namespace headrace::placement
