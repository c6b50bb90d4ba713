#include "plan/placement/counted/counted_planner.h"

#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "base/check.h"

namespace headrace::placement {
namespace {

constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kAhead = 16;  // blocks whose entries are prefetched

}  // namespace

std::vector<std::uint32_t> Wanted::Blocks() const {
  std::vector<std::uint32_t> blocks;
  blocks.reserve(share_.kept.size());
  for (const Kept& each : share_.kept) blocks.push_back(each.block);
  std::ranges::sort(blocks);
  return blocks;
}

void Wanted::MoveUp(const BlockSizes& sizes, const BlockMap& blocks) {
  TierRoom& room = share_.room;
  bool left = false;  // in a tier that is not the slowest
  for (TierNumber tier = 0; tier + 1 < room.count(); ++tier)
    left |= room.Free(tier) >= sizes.least();
  if (!left) return;
  std::uint64_t samples = 0;
  for (const std::uint32_t block : Blocks()) {
    const TierNumber tier = room.WithRoom(block);
    if (tier >= tier_of_[block]) continue;
    samples += blocks.block(block).count;
    if (samples > kMovedUpMax) return;
    room.Return(tier_of_[block], sizes.Of(block));
    room.Take(tier, sizes.Of(block));
    tier_of_[block] = tier;
  }
}

void Draw::Start(std::uint64_t node, bool shared) {
  node_ = node;
  shared_ = shared;
  permutation_.reset();
  places_ = {};
}

const Permutation& Draw::permutation() {
  if (!permutation_.has_value()) {
    permutation_.emplace(blocks_, seed_, node_, RandomStream::kPlacement);
  }
  return *permutation_;
}

void Draw::Places(std::span<const std::uint32_t> blocks, std::span<std::uint32_t> places) {
  if (!shared_) {
    if (!finder_.has_value()) finder_.emplace(blocks_);
    finder_->Find(seed_, node_, RandomStream::kPlacement, blocks, places);
    return;
  }
  if (places_.empty()) {
    const Permutation& order = permutation();
    places_.resize(blocks_);
    for (std::uint32_t i = 0; i < blocks_; ++i) places_[order.At(i)] = i;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i + kAhead < blocks.size()) __builtin_prefetch(&places_[blocks[i + kAhead]]);
    places[i] = places_[blocks[i]];
  }
}

CountedPlanner::CountedPlanner(PlacementRequest given, std::unique_ptr<UseStream> stream,
                               std::unique_ptr<UseStream> ahead, Rules rules)
    : SteppedPlanner(std::move(given), std::move(stream)),
      ahead_(std::move(ahead)),
      rules_(rules),
      draw_(block_count(), request().seed),
      wanted_(block_count()),
      kept_(lists_ == nullptr ? 0 : nodes()) {
  for (std::uint32_t each = 0; each < kept_.size(); ++each) {
    ForHeld(each, [&](std::uint32_t block, TierNumber /*tier*/) { kept_[each].push_back(block); });
    std::ranges::sort(kept_[each]);
  }
}

void CountedPlanner::Advance() {
  const std::uint64_t epoch = uses().at.epoch;
  if (period_end_.has_value() && epoch < *period_end_) return;
  const std::uint64_t epochs = nodes() == 1 ? 1 : request().horizon_epochs;
  period_end_ = epoch + std::min(epochs, kForever - epoch);
  Count();
  if (stopped()) return;
  std::vector<Share> shares;
  for (std::uint32_t each = 0; each < nodes(); ++each) {
    shares.push_back(
        {.room = TierRoom(shared_sizes(), request().capacity_units[each]), .kept = {}});
  }
  if (!rules_.draws_by_node) draw_.Start(0, /*shared=*/true);
  Assign(shares);
  counts_->ForgetUsers();
  for (std::uint32_t each = 0; each < nodes(); ++each) {
    wanted_.Start(std::move(shares[each]));
    if (rules_.draws_by_node) draw_.Start(each, /*shared=*/false);
    if (!wanted_.room().Full()) lists_ != nullptr ? FillFromLists(each) : Fill(each);
    if (stopped()) return;
    wanted_.MoveUp(sizes(), *request().blocks);
    Change(each);
  }
  draw_.Forget();
}

// Whether a node's inserts are planned one after the other.
bool CountedPlanner::OrdersInserts(std::uint32_t each) const {
  return nodes_[each].recorded() || request().numbers_inserts;
}

void CountedPlanner::Count() {
  if (!counts_.has_value()) {
    std::vector<bool> listed(nodes());
    for (std::uint32_t each = 0; each < nodes(); ++each) listed[each] = OrdersInserts(each);
    counts_.emplace(block_count(), std::move(listed), lists_ != nullptr, rules_.by_block);
  }
  counts_->Clear();
  bool more = peeked_ || ahead_->Next(seen_);
  while (more && seen_.at.epoch < *period_end_ && !stopped()) {
    counts_->Add(seen_);
    more = ahead_->Next(seen_);
  }
  peeked_ = more;
  counts_->Close();
}

// Fills the room of a node with the blocks that it uses most; among equals, those that it has
// first, then in the order drawn. Blocks that it does not use stay while there is room. With
// `stays` those that it has come before all others. Key() says so in a number, which is 0 for what
// it neither uses nor has.
void CountedPlanner::Fill(std::uint32_t each) {
  const std::uint32_t levels = std::uint32_t{counts_->most()} + 1;
  const auto key = [&](std::uint32_t block) {
    return Key(counts_->Of(each, block), nodes_[each].Has(block), levels);
  };
  std::vector<std::uint32_t> ends(std::size_t{levels} * 2);  // by key; a counting sort
  for (std::uint32_t block = 0; block < block_count(); ++block) ++ends[key(block)];
  std::uint32_t sum = 0;
  for (std::size_t k = ends.size() - 1; k > 0; --k) {
    sum += ends[k];
    ends[k] = sum - ends[k];
  }
  std::vector<std::uint32_t> sorted(sum);
  const Permutation& draw = draw_.permutation();
  for (std::uint32_t i = 0; i < block_count(); ++i) {
    if (StoppedAt(i)) return;
    const auto block = static_cast<std::uint32_t>(draw.At(i));
    const std::uint32_t k = key(block);
    if (k > 0) sorted[ends[k]++] = block;
  }
  for (const std::uint32_t block : sorted) {
    if (wanted_.Of(block) != kNoTier) continue;
    if (!Add(each, block) && wanted_.room().Full()) return;
  }
}

// The same, at a cost by what the node uses and has.
void CountedPlanner::FillFromLists(std::uint32_t each) {
  const std::span<const std::uint32_t> uses = counts_->UsedBy(each);
  std::vector<std::uint32_t> used(uses.begin(), uses.end());
  std::ranges::sort(used);
  const std::vector<std::uint32_t>& kept = kept_[each];
  candidates_.clear();
  for (std::size_t i = 0, k = 0; i < used.size() || k < kept.size();) {
    const std::uint32_t block =
        i == used.size() || (k < kept.size() && kept[k] < used[i]) ? kept[k] : used[i];
    const std::size_t first = i;
    while (i < used.size() && used[i] == block) ++i;
    const bool has = k < kept.size() && kept[k] == block;
    if (has) ++k;
    if (wanted_.Of(block) != kNoTier) continue;
    const auto count =
        static_cast<std::uint32_t>(std::min<std::size_t>(i - first, UseCounts::kMost));
    const std::uint32_t key = Key(count, has, UseCounts::kMost + 1U);
    if (key > 0) candidates_.push_back({.key = key, .place = 0, .block = block});
  }
  std::ranges::sort(candidates_, std::ranges::greater(), &Candidate::key);
  for (std::size_t first = 0; first < candidates_.size();) {
    std::size_t end = first;
    while (end < candidates_.size() && candidates_[end].key == candidates_[first].key) ++end;
    FillLevel(each, std::span(candidates_).subspan(first, end - first));
    if (wanted_.room().Full()) return;
    first = end;
  }
}

// Takes blocks of one key.
void CountedPlanner::FillLevel(std::uint32_t each, std::span<Candidate> level) {
  if (OrderMatters(each, level)) {
    std::vector<std::uint32_t> blocks;
    blocks.reserve(level.size());
    for (const Candidate& candidate : level) blocks.push_back(candidate.block);
    std::vector<std::uint32_t> places(level.size());
    draw_.Places(blocks, places);
    for (std::size_t i = 0; i < level.size(); ++i) level[i].place = places[i];
    std::ranges::sort(level, {}, &Candidate::place);
  }
  for (const Candidate& candidate : level) {
    if (!Add(each, candidate.block) && wanted_.room().Full()) return;
  }
}

// Whether another order of these blocks, of one key, may put them elsewhere: not if all stay where
// they are; or one tier takes all of them, and those before it none.
bool CountedPlanner::OrderMatters(std::uint32_t each, std::span<const Candidate> level) const {
  if (level.size() == 1) return false;
  std::array<std::uint64_t, kTiersMax> had{};  // by tier
  std::uint64_t sum = 0;
  std::uint64_t least = kForever;
  for (const Candidate& candidate : level) {
    const std::uint64_t units = sizes().Of(candidate.block);
    if (units == BlockSizes::kTooLarge) continue;
    const TierNumber has = nodes_[each].Of(candidate.block);
    if (has != kNoTier) had[has] += units;
    sum += units;
    least = std::min(least, units);
  }
  const TierRoom& room = wanted_.room();
  const bool has = nodes_[each].Has(level.front().block);  // All have it, or none.
  for (TierNumber tier = 0; tier < room.count(); ++tier) {
    if (has ? had[tier] > room.Free(tier) : least <= room.Free(tier)) {
      return has || sum > room.Free(tier);
    }
  }
  return false;
}

// Changes the tiers of a node to the plan, never above a capacity: evictions first, then moves,
// then inserts in the order of first use. Where nobody asks for the ops, in any order.
void CountedPlanner::Change(std::uint32_t each) {
  NodeTiers& tiers = nodes_[each];
  std::vector<std::uint32_t> planned;
  if (lists_ != nullptr) planned = wanted_.Blocks();
  const std::vector<std::uint32_t>* const had = lists_ == nullptr ? nullptr : &kept_[each];
  const std::vector<std::uint32_t>* const wanted = lists_ == nullptr ? nullptr : &planned;
  const auto insert = [&](std::uint32_t block) {
    const TierNumber to = wanted_.Of(block);
    const TierNumber from = tiers.Of(block);
    if (from != to && from == kNoTier) tiers.Move(block, from, to);
  };
  if (OrdersInserts(each)) {
    Exchange(tiers, had);
    const std::span<const std::uint32_t> used = counts_->UsedBy(each);
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (i + kAhead < used.size()) {
        wanted_.Expect(used[i + kAhead]);
        tiers.Expect(used[i + kAhead]);
      }
      insert(used[i]);
    }
    ForBlocks(wanted, insert);
  } else {
    ForBlocks(had, [&](std::uint32_t block) {
      const TierNumber from = tiers.Of(block);
      if (from != wanted_.Of(block) && from != kNoTier) tiers.Hold(block, kNoTier);
    });
    ForBlocks(wanted, [&](std::uint32_t block) {
      const TierNumber to = wanted_.Of(block);
      if (to != tiers.Of(block)) tiers.Hold(block, to);
    });
  }
  if (lists_ != nullptr) kept_[each] = std::move(planned);
}

void CountedPlanner::Exchange(NodeTiers& tiers, const std::vector<std::uint32_t>* had) {
  std::array<std::deque<std::uint32_t>, kTiersMax> moving;  // by the tier that they go to
  ForBlocks(had, [&](std::uint32_t block) {
    const TierNumber to = wanted_.Of(block);
    const TierNumber from = tiers.Of(block);
    if (from == to || from == kNoTier) return;
    if (to == kNoTier) {
      tiers.Move(block, from, kNoTier);
    } else {
      moving[to].push_back(block);
    }
  });
  while (true) {
    bool moved = false;
    std::deque<std::uint32_t>* stuck = nullptr;
    for (std::size_t tier = moving.size(); tier > 0; --tier) {
      std::deque<std::uint32_t>& queue = moving[tier - 1];
      while (!queue.empty() && tiers.HasRoom(wanted_.Of(queue.front()), queue.front())) {
        tiers.Move(queue.front(), wanted_.Of(queue.front()));
        queue.pop_front();
        moved = true;
      }
      if (!queue.empty()) stuck = &queue;
    }
    if (stuck == nullptr) return;
    if (moved) continue;
    // Full tiers exchange blocks: one is evicted and comes back with the inserts.
    tiers.Move(stuck->front(), kNoTier);
    stuck->pop_front();
  }
}

std::span<const CountedPlanner::NodeUse> CountedPlanner::NodesOf(std::uint32_t block) const {
  node_uses_.clear();
  const std::span<const std::uint32_t> users = counts_->UsersOf(block);
  const std::span<const HolderLists::Entry> having = lists_->Of(block);
  for (std::size_t i = 0, k = 0; i < users.size() || k < having.size();) {
    const std::uint32_t node =
        i == users.size() || (k < having.size() && having[k].node() < users[i]) ? having[k].node()
                                                                                : users[i];
    const std::size_t first = i;
    while (i < users.size() && users[i] == node) ++i;
    const bool has = k < having.size() && having[k].node() == node;
    if (has) ++k;
    const auto uses =
        static_cast<std::uint32_t>(std::min<std::size_t>(i - first, UseCounts::kMost));
    node_uses_.push_back({.node = node, .uses = uses, .has = has});
  }
  return node_uses_;
}

std::optional<std::uint32_t> CountedPlanner::MostInLists(std::uint32_t block, std::uint32_t limit,
                                                         bool has) const {
  const std::span<const NodeUse> list = NodesOf(block);
  std::optional<std::uint32_t> most;
  if (!has && limit > 0 && list.size() < nodes()) most = 0;  // All others.
  for (const NodeUse& each : list) {
    if (each.has == has && each.uses < limit && each.uses >= most.value_or(0)) most = each.uses;
  }
  return most;
}

}  // namespace headrace::placement
