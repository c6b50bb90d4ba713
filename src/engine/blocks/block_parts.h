#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/cell_pool.h"
#include "engine/blocks/block_work.h"
#include "engine/loop/loop_context.h"
#include "engine/memory/pinned_blocks.h"
#include "engine/tiers/tier_filler.h"
#include "headrace/ids.h"
#include "headrace/part_stats.h"

namespace headrace {

// Memory for the samples of block reads.
struct BlockMemory {
  std::shared_ptr<CellPool> residents;          // null: the plan has no block reads
  std::shared_ptr<PinnedBlocks> pinned_blocks;  // null: no block stays in memory
};

// Divides a block read into parts: reads of storage, of tiers, of other nodes and of parcels, and
// pieces that are in memory already.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
class BlockParts {
 public:
  // `tiers` may be null. Counts the pieces of pinned blocks in `counts`; `client` gets the
  // results of the parts' reads.
  BlockParts(LoopContext& loop, const BlockMemory& memory, TierFiller* tiers, FetchClient& client,
             BlockCounts& counts)
      : loop_(loop), memory_(memory), tiers_(tiers), client_(client), counts_(counts) {}

  // Makes the parts of `pieces`, all pieces needed of `block`.
  void MakeAll(BlockWork& block, std::vector<BlockPiece> pieces);
  // The same for a parcel: `pieces` by place, then field.
  void MakeOfParcel(BlockWork& block, std::span<BlockPiece> pieces);
  // One part of a parcel, of some of its samples.
  BlockPart* MakeParcelPart(BlockWork& block, std::span<BlockPiece> pieces) const;
  // One part, of pieces in `from`.
  BlockPart* Make(BlockWork& block, const FetchFrom& from,
                  std::span<const BlockPiece> pieces) const;
  // Takes the pieces out of `part` that failed, and makes a part of each, of storage: the next
  // source of a tier's or another node's. They go before what is `queued`.
  void ReadAgain(BlockPart& part, std::deque<BlockPart*>& queued) const;

 private:
  void TakeFromPinnedBlocks(BlockWork& block, std::vector<BlockPiece>& pieces);
  void TakeEntries(BlockWork& block, std::vector<BlockPiece>& pieces);
  void TakeFromNode(BlockWork& block, std::vector<BlockPiece>& pieces);
  void MakeWhole(BlockWork& block, std::span<const BlockPiece> pieces);
  void PlanInserts(const BlockWork& block, BlockPart& part);
  void PinBlock(BlockWork& block) const;

  LoopContext& loop_;
  const BlockMemory& memory_;
  TierFiller* const tiers_;
  FetchClient& client_;
  BlockCounts& counts_;
};

}  // namespace headrace
