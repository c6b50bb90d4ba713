#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cell_pool.h"
#include "base/status.h"
#include "engine/blocks/residency.h"
#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/rows/row_decoder.h"
#include "engine/rows/row_reader.h"
#include "engine/rows/warm_rows.h"
#include "engine/step/step_work.h"
#include "engine/tiers/tier_filler.h"
#include "tier/tier.h"

namespace headrace {

// The rows of the steps in work, from planned to done. A row's bytes come from cells, from a tier,
// from another node or from storage; they are decoded; where that fails, the row falls back from
// its tier or node to storage, then another sample stands in for it, or its step fails.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor and of Connect() outlive it.
// Shutdown: the owner waits until nothing is in flight.
class Rows final : public RowReaderClient,
                   public RowDecoderClient,
                   public WarmRowsClient,
                   public TierFillerClient,
                   public ResidencyClient {
 public:
  Rows(LoopContext& loop, LaneQueues& queues, const DecodeParts& parts);

  // Once, before the first step: where rows come from beside storage. Null: no tiers; no blocks.
  void Connect(TierFiller* tiers, Residency* blocks);

  // Takes references to what the tiers have of a part of a step, and notes which other nodes have
  // the rest; only after that the plan may go on.
  void FindInTiers(StepWork& work) const;
  // Plans the reads of all rows of a part of a step that was admitted.
  void Plan(StepWork& work);
  void IssueReads() { reader_.Issue(); }
  // A lane may have more decodes at once than before.
  void StartDecodes(std::uint32_t lane) { decoder_.Start(lane); }

  // The run has ended: nothing is begun any more.
  void DropQueue() { decoder_.DropLarge(); }
  // Nothing is in flight: gives back the cells of a step's rows.
  void ReleaseCells(StepWork& work) const;

  void OnRead(StepWork& work, std::span<const std::uint32_t> slots) override {
    decoder_.Submit(work, slots);
  }
  void OnReadFailed(StepWork& work, std::uint32_t slot, Status status) override;
  void DecodeNow(DecodeTask& task) override { decoder_.Run(task); }
  void InsertRow(DecodeTask& task, std::uint32_t slot) override;
  void OnDecoded(DecodeTask& task) override;
  void OnWarm(WarmTask& task) override;
  void OnArrived(RowRef row, Tier& tier) override;
  void OnInserted(RowRef row) override;
  void OnKept(std::span<KeptBytes> kept) override;

 private:
  void PlanMissed(StepWork& work, const WarmTask& task);
  RowReader::Reads MakeMissed(StepWork& work, std::span<RowReader::Piece> pieces, bool not_held);
  bool PlanFromTier(StepWork& work, std::uint32_t slot, std::vector<std::uint32_t>& resident);
  bool PlanFromNode(StepWork& work, std::uint32_t slot);
  Result<std::uint64_t> LayOut(StepWork& work, std::uint32_t slot) const;
  [[nodiscard]] bool TakeEntry(StepWork& work, std::uint32_t slot) const;
  void FitRows(StepWork& work, std::uint32_t slot) const;
  [[nodiscard]] Status FindPieces(const StepWork& work, std::uint32_t slot,
                                  std::vector<RowReader::Piece>& pieces) const;
  void PlanFromStorage(StepWork& work, std::uint32_t slot);
  [[nodiscard]] Status MakeRoom(StepWork& work, const RowReader::Piece& piece) const;
  [[nodiscard]] Status MakeInlineRoom(StepWork& work, std::uint32_t slot) const;
  Status TakeRoom(StepWork& work, std::uint64_t bytes, std::span<std::byte>& row) const;
  bool TakeKept(KeptBytes& kept);
  void Fail(StepWork& work, std::uint32_t slot, const Status& status);
  void EndRow(StepWork& work, std::uint32_t slot);
  void Release(StepWork& work, std::uint32_t slot) const;
  [[nodiscard]] std::string Describe(const StepWork& work, std::uint32_t slot) const;

  LoopContext& loop_;
  LaneQueues& queues_;
  const std::shared_ptr<CellPool> residents_;  // null: no row has cells
  TierFiller* tiers_ = nullptr;
  Residency* blocks_ = nullptr;
  WarmRows warm_;
  RowReader reader_;
  RowDecoder decoder_;
};

}  // namespace headrace
