#include "engine/blocks/block_units.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fetch/coalesce.h"

namespace headrace {

void BlockUnits::MakeAll(BlockWork& block, std::vector<BlockPiece> pieces) {
  const auto extent_of = [](const BlockPiece& piece) -> const Extent& { return piece.extent; };
  const auto by_place = [](const BlockPiece& a, const BlockPiece& b) {
    return LiesBefore(a.extent, b.extent);
  };
  if (!std::is_sorted(pieces.begin(), pieces.end(), by_place)) {
    std::sort(pieces.begin(), pieces.end(), by_place);
  }
  if (memory_.pinned_blocks != nullptr) TakeFromPinnedBlocks(block, pieces);
  if (!block.entries.empty()) TakeEntries(block, pieces);
  const CoalesceLimits limits{.gap_bytes = loop_.options.block_gap_bytes,
                              .bytes_max = loop_.options.block_read_bytes_max};
  Coalesce(
      std::span<const BlockPiece>(pieces), limits, extent_of,
      [](const BlockPiece&) { return false; },
      [&](const Extent& extent, std::span<const BlockPiece> together) {
        BlockUnit* const unit = Make(block, extent, together);
        if (tiers_ != nullptr) PlanInserts(block, *unit);
      });
  PinBlock(block);
}

BlockUnit* BlockUnits::Make(BlockWork& block, const Extent& extent,
                            std::span<const BlockPiece> pieces) const {
  auto unit = std::make_unique<BlockUnit>();
  unit->entry = pieces.front().entry;
  unit->source = unit->entry == nullptr ? &loop_.storage : &loop_.entries;
  unit->client = &client_;
  unit->deadline = block.deadline;
  unit->extent = extent;
  unit->block = &block;
  unit->pieces.assign(pieces.begin(), pieces.end());
  ++block.units_left;
  return block.units.emplace_back(std::move(unit)).get();
}

// Takes those of `pieces` that are in pinned blocks.
void BlockUnits::TakeFromPinnedBlocks(BlockWork& block, std::vector<BlockPiece>& pieces) {
  std::vector<BlockPiece> taken;
  for (BlockPiece& piece : pieces) {
    if (piece.extent.range.size == 0) continue;
    const auto bytes = memory_.pinned_blocks->Find(piece.extent);
    if (!bytes.has_value()) continue;
    piece.from_pinned_block = bytes->data();
    taken.push_back(piece);
    counts_.pinned_bytes += piece.extent.range.size;
  }
  if (taken.empty()) return;
  Make(block, taken.front().extent, taken)->in_memory = true;
  ++counts_.pinned_reads;
  std::erase_if(pieces, [](const BlockPiece& piece) { return piece.from_pinned_block != nullptr; });
}

// Takes those of `pieces` that tiers have: what is in memory is copied at once, what is not is read
// sample by sample.
void BlockUnits::TakeEntries(BlockWork& block, std::vector<BlockPiece>& pieces) {
  std::vector<std::uint64_t> bytes(block.samples.size());
  for (const BlockPiece& piece : pieces) bytes[piece.kept] += piece.extent.range.size;
  std::vector<BlockPiece> in_memory;
  std::map<std::uint32_t, std::vector<BlockPiece>> on_disk;
  for (BlockPiece& piece : pieces) {
    const Tier::EntryRef& entry = block.entries[piece.kept];
    if (!entry || entry.bytes() != bytes[piece.kept]) continue;
    piece.entry = &entry;
    if (entry.tier()->in_memory()) {
      in_memory.push_back(piece);
    } else {
      on_disk[piece.kept].push_back(piece);
    }
    if (piece.cells_offset == 0 && piece.field == 0) tiers_->CountUse(piece.sample, entry);
  }
  std::erase_if(pieces, [](const BlockPiece& piece) { return piece.entry != nullptr; });
  if (!in_memory.empty()) Make(block, in_memory.front().extent, in_memory)->in_memory = true;
  for (const auto& [kept, of_sample] : on_disk) {
    Extent extent = of_sample.front().extent;
    extent.range.size = block.entries[kept].bytes();
    Make(block, extent, of_sample);
  }
}

// What tiers are to take of a read: samples that come with it whole.
void BlockUnits::PlanInserts(const BlockWork& block, BlockUnit& unit) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_sample;
  for (std::size_t i = 0; i < unit.pieces.size(); ++i) {
    by_sample[unit.pieces[i].kept].push_back(i);
  }
  const auto field_of = [&](std::size_t i) { return unit.pieces[i].field; };
  for (auto& [kept, positions] : by_sample) {
    const SampleId sample = unit.pieces[positions.front()].sample;
    // Once a sample, in however many reads it comes.
    if (std::ranges::count(positions, 0U, field_of) > 0) tiers_->Count(&TierCounts::storage_uses);
    Tier* const tier = tiers_->Wanted(sample);
    if (tier == nullptr || (!block.entries.empty() && block.entries[kept])) continue;
    if (positions.size() != loop_.fields.size()) {
      tiers_->Count(&TierCounts::not_kept);  // Its fields come in several reads.
      continue;
    }
    std::ranges::sort(positions, {}, field_of);
    unit.inserts.push_back({.sample = sample, .tier = tier, .pieces = std::move(positions)});
  }
}

// A whole block is read straight into memory of pinned blocks, while there is room for all of it.
// Not one of which a tier has a sample: a tier reads an entry, which is laid out in another way.
void BlockUnits::PinBlock(BlockWork& block) const {
  if (memory_.pinned_blocks == nullptr || !block.entries.empty()) return;
  if (!block.plan.kept.empty() || !block.failures.empty()) return;
  for (const std::unique_ptr<BlockUnit>& unit : block.units) {
    std::optional<Buffer> buffer;
    if (!unit->in_memory) buffer = memory_.pinned_blocks->Acquire(unit->source->BufferBytes(*unit));
    if (!buffer.has_value()) {
      for (const std::unique_ptr<BlockUnit>& taken : block.units) taken->buffer.Reset();
      return;
    }
    unit->buffer = *std::move(buffer);
  }
  block.to_be_pinned = true;
}

}  // namespace headrace
