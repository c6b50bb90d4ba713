#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/cell_pool.h"
#include "engine/blocks/residency.h"
#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/rows/ragged_room.h"
#include "engine/rows/row_reader.h"
#include "engine/rows/warm_rows.h"
#include "engine/step/step_work.h"
#include "engine/tiers/tier_filler.h"
#include "fetch/sample_chain.h"
#include "headrace/status.h"
#include "tier/tier.h"

namespace headrace {

// Receives the bytes of rows. As RowReaderClient, but a row fails only when its last source has
// failed.
class RowFetcherClient : public RowReaderClient {
 public:
  // The loop: the insert that RowFetcher::Insert() began has ended. The row's bytes may be freed.
  virtual void OnInserted(RowRef row) = 0;
};

// Brings the bytes of rows into memory: from the cells of a block read; or from the first source of
// its sample's chain that gives them, a tier, another node or storage. docs/design/fetch.md has the
// order of sources, and how errors are handled.
//
// Thread safety: called by the engine's loop, one call at a time, but for Insert().
// Ownership: the arguments of the constructor and of Connect() outlive it.
// Shutdown: the owner waits until nothing is in flight; then ReleaseCells() for the steps in work.
class RowFetcher final : public RowReaderClient,
                         public WarmRowsClient,
                         public TierFillerClient,
                         public ResidencyClient {
 public:
  // `residents` null: no row has cells.
  RowFetcher(LoopContext& loop, LaneQueues& queues, std::shared_ptr<CellPool> residents,
             RowFetcherClient& client);

  // Once, before the first step: where rows come from beside storage. Null: no tiers; no blocks.
  void Connect(TierFiller* tiers, Residency* blocks);

  // Takes references to the samples of a part of a step that tiers have, and notes which other
  // nodes have the rest; only then may the plan advance.
  void FindInTiers(StepWork& work) const;
  // Plans the reads of all rows of a part of a step that was admitted.
  void Plan(StepWork& work);
  void IssueReads() { reader_.Issue(); }

  // The bytes are not those of the row's sample, or the read failed: frees them, and reads the
  // sample from its next source. Returns false if there is none, or the run has ended.
  bool ReadFromNext(StepWork& work, std::uint32_t slot);
  // Reads the sample that stands in for the row's, ahead of all others: its step is older.
  void ReadStandIn(StepWork& work, std::uint32_t slot);

  // A task: see RowDecoderClient::InsertRow().
  void Insert(DecodeTask& task, std::uint32_t slot, std::vector<std::span<const std::byte>> parts);
  // The inserts that ended inside the task.
  void FinishInserts(DecodeTask& task);
  // A row is done: frees the staging memory of a read with the last row in it, and likewise cells
  // and the entry of a tier.
  void Release(StepWork& work, std::uint32_t slot) const {
    work.samples[slot].chain.Reset();
    GiveBack(work, slot);
  }
  void ReleaseCells(StepWork& work) const;

 private:
  void OnRead(StepWork& work, std::span<const std::uint32_t> slots) override {
    client_.OnRead(work, slots);
  }
  void OnReadFailed(StepWork& work, std::uint32_t slot, Status status) override;
  void DecodeNow(DecodeTask& task) override { client_.DecodeNow(task); }
  void OnDecoded(DecodeTask& task) override { client_.OnDecoded(task); }
  void OnWarm(WarmTask& task) override;
  void OnArrived(RowRef row, Tier& tier) override;
  void OnInserted(RowRef row) override;
  std::optional<Fetcher::Memory> IssueNow(RowRef row) override {
    return reader_.IssueNow(*row.step, row.slot);
  }
  void OnKept(std::span<KeptBytes> kept) override;

  void PlanMissed(StepWork& work, const WarmTask& task);
  RowReads MakeMissed(StepWork& work, std::span<RowReader::Piece> pieces, bool not_held);
  bool PlanFromChain(StepWork& work, std::uint32_t slot, bool early,
                     std::vector<std::uint32_t>& resident);
  std::optional<std::uint64_t> ReadFromNode(StepWork& work, std::uint32_t slot, bool early);
  void ReadFromStorage(StepWork& work, std::uint32_t slot);
  Result<std::uint64_t> LayOut(StepWork& work, std::uint32_t slot, bool in_entry = false) const;
  [[nodiscard]] bool TakeEntry(StepWork& work, std::uint32_t slot) const;
  [[nodiscard]] Status FindPieces(const StepWork& work, std::uint32_t slot,
                                  std::vector<RowReader::Piece>& pieces) const;
  bool TakeKept(KeptBytes& kept);
  void GiveBack(StepWork& work, std::uint32_t slot) const;

  LoopContext& loop_;
  LaneQueues& queues_;
  const std::shared_ptr<CellPool> residents_;
  RowFetcherClient& client_;
  TierFiller* tiers_ = nullptr;
  Residency* blocks_ = nullptr;
  const RaggedRoom ragged_;
  WarmRows warm_;
  RowReader reader_;
};

}  // namespace headrace
