#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/cell_pool.h"
#include "engine/blocks/block_copier.h"
#include "engine/blocks/block_parts.h"
#include "engine/blocks/block_work.h"
#include "engine/blocks/parcel_parts.h"
#include "engine/loop/loop_context.h"
#include "engine/tiers/tier_filler.h"
#include "fetch/fetch.h"
#include "headrace/ids.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

// The outcome of a sample that a block read keeps, now owned by the row.
struct KeptBytes {
  RowRef row;
  Status error;              // or why its bytes are not there
  CellRun cells = kNoCells;  // the row's, to be released
  std::uint32_t bytes = 0;   // stored; KeptSample::kLarge: ask the index
  bool in_storage = false;   // they are not in cells: the row is to read them, by WarmRows
};

// Waits for samples of block reads, on behalf of rows or of other nodes. Called by the loop.
class ResidencyClient {
 public:
  virtual ~ResidencyClient() = default;

  // Those that Take() had wait: all that one read brought.
  virtual void OnKept(std::span<KeptBytes> kept) = 0;
};

// Keeps the samples of block reads resident: from the plan to cells, from cells to rows. A parcel
// of another node is one of them: see docs/design/homes.md.
//
// Block reads are issued in the order of their numbers, each once there are cells for all samples
// that it keeps. The samples wait in these cells for their deliveries. There is no deadlock:
//   - Staging memory waits only for reads and tasks. A block read has its cells before it takes
//     staging memory, and each part of it gives its staging memory back independently.
//   - Cells that the plan delivers or releases before a block read become free without that read:
//     their steps are admitted by then, their reads were issued, and decoding waits for nothing.
//     The other cells hold what the plan keeps resident, and the plan leaves room for the block
//     read beside that.
//   - Parcels wait for other nodes, and take nothing that reads of storage need but their cells.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: ReleaseAll() when nothing is in flight, before destruction.
class Residency final : public FetchClient {
 public:
  // `tiers` may be null.
  Residency(LoopContext& loop, BlockMemory memory, TierFiller* tiers, ResidencyClient& client);
  // Sets the client for samples that go to other nodes, whose KeptBytes::row has no step. Call it
  // once, before the first step, unless no samples go to other nodes.
  void Connect(ResidencyClient* outbox) { outbox_ = outbox; }

  // Takes the block reads of a step, in the order of its stream. Takes references to their entries
  // in tiers, before the plan may evict these.
  void Queue(std::vector<BlockRead> reads, std::span<const Release> releases);
  // No row gets this kept sample.
  void Drop(const Release& release);

  // The records of a step's samples lie anywhere in memory: fetched all at once, they cost a tenth.
  void Prefetch(const Step& step) const;
  // Gives kept.row, for which `block_read` keeps `sample`, its cells or its error. Returns false if
  // its bytes were not read yet: the client is called later.
  bool Take(std::uint64_t block_read, SampleId sample, KeptBytes& kept);

  // Issues reads as far as cells, staging memory and reads in flight allow.
  //
  // Errors: Internal  the plan needs more cells than there are
  Status IssueReads();
  // Whether reads that have their cells wait to be issued.
  [[nodiscard]] bool has_queued() const { return !queued_.empty(); }
  // A sample that was left in storage is no longer in the page cache.
  void OnLeftCache() { blocks_to_read_ = kReadAfterMiss; }
  // Whether all block reads numbered below `number` are done, with success or not.
  bool HaveCome(std::uint64_t number);

  void DropQueue() {
    queued_.clear();
    parcels_.Drop();
  }
  void ReleaseAll();

  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override;

  [[nodiscard]] const BlockCounts& counts() const { return counts_; }
  // Samples went to other nodes.
  void CountSent(std::uint64_t samples, std::uint64_t bytes) {
    counts_.sent_samples += samples;
    counts_.sent_bytes += bytes;
  }
  void CountSentParcel() { ++counts_.sent_parcels; }

 private:
  std::pair<BlockWork*, std::uint32_t> FindKept(std::uint64_t number, SampleId sample);
  [[nodiscard]] const BlockWork* FindBlock(const Delivery& delivery) const;
  void FindInTiers(BlockWork& block) const;
  void Give(BlockWork& block, KeptSample& sample, KeptBytes& to);
  void Forget(BlockWork& block, KeptSample& sample);
  void ForgetBlock(const BlockWork& block);

  [[nodiscard]] bool MayReadNext();
  Result<bool> BeginBlock();
  [[nodiscard]] bool MayStay(const BlockWork& block) const;
  [[nodiscard]] bool IsHeld(const BlockWork& block, std::size_t index_field) const;
  void LeaveInStorage(BlockWork& block);
  void PlanBlock(BlockWork& block);
  void ReadNowOrRead(BlockPart& part);
  void SubmitCopy(BlockPart& part);
  void Copy(BlockPart& part);
  void OnCopied(BlockPart& part);
  void FinishPart(BlockPart& part);
  void FinishPiece(BlockWork& block, std::uint32_t place, Status&& status,
                   std::vector<KeptBytes>& come);
  void FinishBlock(BlockWork& block);

  LoopContext& loop_;
  const BlockMemory memory_;
  TierFiller* const tiers_;
  ResidencyClient& client_;
  ResidencyClient* outbox_ = nullptr;
  BlockCounts counts_;
  BlockParts parts_;
  const BlockCopier copier_;
  // Block reads by number, from blocks_begin_ on; null where all is done.
  std::deque<std::unique_ptr<BlockWork>> blocks_;
  std::uint64_t blocks_begin_ = 0;
  std::uint64_t next_block_ = 0;   // the next to take cells
  std::uint64_t come_ = 0;         // all before it are done
  std::deque<BlockPart*> queued_;  // to be issued
  ParcelParts parcels_;
  // The number of block reads to issue, whatever the page cache holds.
  static constexpr std::uint32_t kReadAfterMiss = 64;
  std::uint32_t blocks_to_read_ = 0;
};

}  // namespace headrace
