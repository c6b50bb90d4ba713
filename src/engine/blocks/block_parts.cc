#include "engine/blocks/block_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fetch/coalesce.h"

namespace headrace {
namespace {

// Of a part of a parcel, unless one sample is larger.
constexpr std::uint64_t kParcelPartBytes = std::uint64_t{1} << 20;

}  // namespace

void BlockParts::MakeAll(BlockWork& block, std::vector<BlockPiece> pieces) {
  const auto extent_of = [](const BlockPiece& piece) -> const Extent& { return piece.extent; };
  const auto by_place = [](const BlockPiece& a, const BlockPiece& b) {
    return LiesBefore(a.extent, b.extent);
  };
  if (!std::is_sorted(pieces.begin(), pieces.end(), by_place)) {
    std::sort(pieces.begin(), pieces.end(), by_place);
  }
  if (memory_.pinned_blocks != nullptr) TakeFromPinnedBlocks(block, pieces);
  if (!block.entries.empty()) TakeEntries(block, pieces);
  if (block.nodes.has_value()) TakeFromNode(block, pieces);
  if (block.plan.whole) return MakeWhole(block, pieces);
  Coalesce(
      std::span<const BlockPiece>(pieces), loop_.options.block_limits(), extent_of,
      [](const BlockPiece&) { return false; },
      [](const BlockPiece& a, const BlockPiece& b) { return a.place == b.place; },
      [&](const Extent& extent, std::span<const BlockPiece> together) {
        BlockPart* const part = Make(block, extent, together);
        if (tiers_ != nullptr) PlanInserts(block, *part);
      });
  PinBlock(block);
}

// One read for each object, of all that it has of the block's samples, wanted or not.
void BlockParts::MakeWhole(BlockWork& block, std::span<const BlockPiece> pieces) {
  std::map<ObjectId, ByteRange> ranges;
  for (std::uint32_t i = 0; i < block.plan.count; ++i) {
    // What has no place fails the row that wants it.
    static_cast<void>(loop_.fields.VisitExtents(
        SampleId{Raw(block.plan.first) + i}, [&ranges](std::uint32_t, const Extent& extent) {
          ByteRange& range = ranges.try_emplace(extent.object, extent.range).first->second;
          const std::uint64_t end = std::max(range.end(), extent.range.end());
          range.offset = std::min(range.offset, extent.range.offset);
          range.size = end - range.offset;
        }));
  }
  while (!pieces.empty()) {
    const ObjectId object = pieces.front().extent.object;
    const auto end = std::ranges::find_if(
        pieces, [object](const BlockPiece& piece) { return piece.extent.object != object; });
    const auto count = static_cast<std::size_t>(end - pieces.begin());
    Make(block, Extent{object, ranges.at(object)}, pieces.first(count));
    pieces = pieces.subspan(count);
  }
}

void BlockParts::MakeOfParcel(BlockWork& block, std::span<BlockPiece> pieces) {
  while (!pieces.empty()) {
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    while (count < pieces.size()) {
      const std::uint32_t place = pieces[count].place;
      std::uint64_t of_sample = 0;
      std::size_t end = count;
      for (; end < pieces.size() && pieces[end].place == place; ++end) {
        of_sample += pieces[end].extent.range.size;
      }
      // A part is a run of the parcel's samples.
      if (count > 0 &&
          (bytes + of_sample > kParcelPartBytes || place != pieces[count - 1].place + 1))
        break;
      bytes += of_sample;
      count = end;
    }
    MakeParcelPart(block, pieces.first(count));
    pieces = pieces.subspan(count);
  }
}

BlockPart* BlockParts::MakeParcelPart(BlockWork& block, std::span<BlockPiece> pieces) const {
  std::uint64_t bytes = 0;
  for (BlockPiece& piece : pieces) {
    piece.parcel_offset = bytes;
    bytes += piece.extent.range.size;
  }
  PartAtNode from{.part = {.round = loop_.parcels->round,
                           .parcel = block.plan.parcel,
                           .first = pieces.front().place,
                           .count = pieces.back().place - pieces.front().place + 1,
                           .ids = 0},
                  .bytes = bytes,
                  .wait = &loop_.parcels->wait,
                  .node = block.plan.home};
  for (std::uint32_t place = pieces.front().place; place <= pieces.back().place; ++place) {
    from.part.ids = NextHashOfIds(from.part.ids, KeptSampleId(block.plan, place));
  }
  BlockPart* const part = Make(block, from, pieces);
  part->in_memory = bytes == 0;  // Empty parts are not asked for.
  return part;
}

BlockPart* BlockParts::Make(BlockWork& block, const FetchFrom& from,
                            std::span<const BlockPiece> pieces) const {
  auto part = std::make_unique<BlockPart>();
  part->client = &client_;
  part->from = from;
  part->deadline = block.deadline;
  part->block = &block;
  part->pieces.assign(pieces.begin(), pieces.end());
  ++block.parts_left;
  return block.parts.emplace_back(std::move(part)).get();
}

void BlockParts::ReadAgain(BlockPart& part, std::deque<BlockPart*>& queued) const {
  const bool falls_back = part.has_next_source();
  for (auto failure = part.failures.rbegin(); failure != part.failures.rend(); ++failure) {
    BlockPiece& piece = part.pieces[failure->first];
    if (falls_back && piece.field == 0) {
      tiers_->Count(part.at_node() ? &TierCounts::node_fallbacks : &TierCounts::fallbacks);
    }
    piece.entry = nullptr;
    queued.push_front(Make(*part.block, piece.extent, {&piece, 1}));
  }
  auto failure = part.failures.begin();
  std::size_t position = 0;
  std::erase_if(part.pieces, [&](const BlockPiece&) {
    const bool failed = failure != part.failures.end() && failure->first == position;
    if (failed) ++failure;
    ++position;
    return failed;
  });
  part.failures.clear();
}

// Takes those of `pieces` that are in pinned blocks.
void BlockParts::TakeFromPinnedBlocks(BlockWork& block, std::vector<BlockPiece>& pieces) {
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
void BlockParts::TakeEntries(BlockWork& block, std::vector<BlockPiece>& pieces) {
  std::vector<std::uint64_t> bytes(block.samples.size());
  for (const BlockPiece& piece : pieces) bytes[piece.place] += piece.extent.range.size;
  std::vector<BlockPiece> in_memory;
  std::map<std::uint32_t, std::vector<BlockPiece>> on_disk;
  for (BlockPiece& piece : pieces) {
    const Tier::EntryRef& entry = block.entries[piece.place];
    if (!entry || entry.bytes() != bytes[piece.place]) continue;
    piece.entry = &entry;
    if (entry.tier()->in_memory()) {
      in_memory.push_back(piece);
    } else {
      on_disk[piece.place].push_back(piece);
    }
    if (piece.cells_offset == 0 && piece.field == 0) tiers_->CountUse(piece.sample, entry);
  }
  std::erase_if(pieces, [](const BlockPiece& piece) { return piece.entry != nullptr; });
  if (!in_memory.empty()) Make(block, in_memory.front().extent, in_memory)->in_memory = true;
  for (const auto& [place, of_sample] : on_disk) Make(block, &block.entries[place], of_sample);
}

// Takes those of `pieces` that another node has, as the plan says: each sample is one read. What
// tiers of this node have is not among them. Samples of no bytes are left: there is nothing to ask
// for.
void BlockParts::TakeFromNode(BlockWork& block, std::vector<BlockPiece>& pieces) {
  std::map<std::uint32_t, std::vector<BlockPiece>> of_samples;
  for (const BlockPiece& piece : pieces) of_samples[piece.place].push_back(piece);
  const auto bytes_of = [](std::span<const BlockPiece> of_sample) {
    std::uint64_t bytes = 0;
    for (const BlockPiece& piece : of_sample) bytes += piece.extent.range.size;
    return bytes;
  };
  std::erase_if(of_samples, [&](const auto& each) {  // Some are pinned: the rest is read.
    return each.second.size() != loop_.fields.size() || bytes_of(each.second) == 0;
  });
  std::erase_if(pieces, [&](const BlockPiece& piece) { return of_samples.contains(piece.place); });
  for (const auto& [place, of_sample] : of_samples) {
    const std::uint64_t bytes = bytes_of(of_sample);
    const SampleAtNode from{
        .nodes = *block.nodes, .sample = of_sample.front().sample, .bytes = bytes};
    BlockPart& part = *Make(block, from, of_sample);
    tiers_->Count(&TierCounts::node_uses);
    tiers_->Count(&TierCounts::node_bytes, bytes);
    PlanInserts(block, part);
  }
}

// What tiers are to take of a read: samples that come with it whole.
void BlockParts::PlanInserts(const BlockWork& block, BlockPart& part) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_sample;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    by_sample[part.pieces[i].place].push_back(i);
  }
  const auto field_of = [&](std::size_t i) { return part.pieces[i].field; };
  for (auto& [place, positions] : by_sample) {
    const SampleId sample = part.pieces[positions.front()].sample;
    // Once a sample, in however many reads it comes.
    const bool counts = !part.at_node() && std::ranges::count(positions, 0U, field_of) > 0;
    if (counts) tiers_->Count(&TierCounts::storage_uses);
    Tier* const tier = tiers_->TierToFill(sample);
    if (tier == nullptr || (!block.entries.empty() && block.entries[place])) continue;
    if (positions.size() != loop_.fields.size()) {
      tiers_->Count(&TierCounts::not_kept);  // Its fields come in several reads.
      continue;
    }
    std::ranges::sort(positions, {}, field_of);
    part.inserts.push_back({.sample = sample, .tier = tier, .pieces = std::move(positions)});
  }
}

// A whole block is read straight into memory of pinned blocks, while there is room for all of it.
// Not one of which a tier has a sample: a tier reads an entry, which is laid out in another way.
void BlockParts::PinBlock(BlockWork& block) const {
  if (memory_.pinned_blocks == nullptr || !block.entries.empty() || block.nodes.has_value()) return;
  if (!block.plan.kept.empty() || !block.failures.empty()) return;
  for (const std::unique_ptr<BlockPart>& part : block.parts) {
    std::optional<Buffer> buffer;
    if (!part->in_memory) buffer = memory_.pinned_blocks->Acquire(loop_.storage.BufferBytes(*part));
    if (!buffer.has_value()) {
      for (const std::unique_ptr<BlockPart>& taken : block.parts) taken->buffer.Reset();
      return;
    }
    part->buffer = *std::move(buffer);
  }
  block.to_be_pinned = true;
}

}  // namespace headrace
