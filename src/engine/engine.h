#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/batch/batch.h"
#include "engine/batch/batch_maker.h"
#include "engine/decode/sample_decoder.h"
#include "engine/engine_options.h"
#include "engine/engine_parts.h"
#include "engine/engine_stats.h"
#include "engine/loop/inbox.h"
#include "engine/tiers/tier_cache.h"
#include "fetch/fetcher.h"
#include "fetch/sources.h"
#include "fetch/verifier.h"
#include "plan/order.h"
#include "tier/tier.h"

namespace headrace {

// Runs a plan for the ranks of a node: walks ahead as far as the budgets allow, reads, verifies,
// decodes each sample into its own slot whatever order it arrives in, and hands each rank, its
// *lane*, its batches in order. What is delivered depends on the plan and the data, never on what
// finishes when.
//
// A step goes through: admitted (batch memory of every lane taken) -> its reads issued (staging
// memory taken) -> its samples decoded, by tasks whose deadline is the step's -> each lane's batch
// complete -> handed over when the lane's earlier ones have been. A step is admitted only with its
// batch memory, reads are issued in the order of the plan, and decoding waits for nothing: so the
// oldest step always gets on, and no wait is a circle. What cannot wait for memory takes it beyond
// the budget, one at a time, counted in stats().*.beyond_*: a batch while the waiting consumer
// holds all there is; a batch or a sample that is larger than all there is.
//
// Lanes share everything but their batch memory. A step is admitted for all of them at once: one
// whose consumer stops taking holds up the others when its memory, or its batches_max, is full, and
// stats().lanes names it. Reads and tasks are due by step, and within a step so that all lanes are
// done with it at one time; a LanePolicy may split them between lanes otherwise.
//
// A decode that needs much scratch memory waits until there is some, the oldest step's first.
// Nothing else waits for it, and a decode that has its memory needs only a thread. If there can
// never be enough, it is an error of the sample.
//
// Thread safety: every method may be called from any thread. The machine itself runs on one thread
// at a time: on whichever brought a completion, or on the executor.
// Ownership: what Parts points at is the caller's and outlives the engine; batches may outlive all.
// Of several engines that share memory, one at a time runs.
// Shutdown: Stop(), then Close() until it returns true, before destruction.
class Engine {
 public:
  using Parts = EngineParts;

  // `tiers`: null, or what the node keeps, planned for `order`; let go where no field is stored.
  Engine(const Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
         std::unique_ptr<TierCache> tiers = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  void Start();  // Once.
  // The lane's consumer took a batch out of the sink, now or when the clock said so.
  void OnTaken(std::uint32_t lane = 0, std::optional<std::int64_t> taken_ns = {});
  // It found the sink empty and waits, from now until the next batch.
  void OnWaiting(std::uint32_t lane = 0);
  // It is gone: its sink is not called once this has returned, and the plan goes on without it.
  void Leave(std::uint32_t lane);
  void Stop();  // Issues no more work and delivers nothing more. Work in flight goes on.
  // Stop(), then waits up to `timeout_ns` (negative: no limit) until nothing is in flight. Returns
  // false if something still is: call it again. Not from a thread that the executor or the store
  // needs to finish that work.
  bool Close(std::int64_t timeout_ns = -1);
  // Nothing is in flight and nothing will be without another call.
  [[nodiscard]] bool quiescent() const;
  [[nodiscard]] EngineStats stats() const;

 private:
  struct Lane;
  struct StepWork;
  struct SampleWork;
  struct ReadUnit;
  struct DecodeTask;
  struct KeptSample;
  struct BlockPiece;
  struct BlockKeep;
  struct BlockUnit;
  struct BlockWork;
  struct FillRead;
  struct TierFill;
  struct RowReads;
  struct BlockReads;
  struct FillReads;
  struct Event;
  struct PieceRef;
  using Piece = StoredPiece;
  using GatheredBytes = SampleDecoder::GatheredBytes;
  using Row = std::pair<StepWork*, std::uint32_t>;  // of a step's batch, by slot
  // Events: how anything gets into the machine.
  std::uint64_t HandleAll(std::span<Event> events);
  void Handle(Event& event) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void OnRead(ReadUnit& unit, Result<std::span<std::byte>> data)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void OnDecoded(DecodeTask& task) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void OnDone(DecodeTask& task) HEADRACE_LOCKS_REQUIRED(state_mutex_);

  void OnTakenAt(Lane& lane, std::int64_t now_ns) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void OnWaitingAt(Lane& lane, std::int64_t now_ns) HEADRACE_LOCKS_REQUIRED(state_mutex_);

  // Advance(): every move that the state allows.
  void Advance() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool AdmitStep() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  Result<std::shared_ptr<Batch>> MakeBatch(const Lane& lane, const Step& step)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  [[nodiscard]] bool LanesHaveRoom() const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void SplitNextStep() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool MakeBatches() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void WeighLanes(std::span<StepWork* const> works) const;
  void SplitShares(Position at, std::span<StepWork* const> works)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  Lane* NextLaneToRead() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  [[nodiscard]] bool nothing_to_read() const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void StartDecodes(Lane& lane) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void DropQueues() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void IssueReads() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  StepWork* AdmitToLane(Lane& lane) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void LetGo(Lane& lane) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void HandOver() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void HandOver(Lane& lane) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void NoteSubstitutions(StepWork& work) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void EndLane(Lane& lane, const Status& status) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void End(const Status& status) HEADRACE_LOCKS_REQUIRED(state_mutex_);

  // Reads and decodes of a step.
  void PlanReads(StepWork& work) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PlanSampleReads(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  std::vector<ReadUnit*> MakeUnits(StepWork& work, std::span<std::pair<Extent, PieceRef>> pieces)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  [[nodiscard]] bool InPlace(const std::pair<Extent, PieceRef>& piece) const;
  ReadUnit* MakeUnit(StepWork& work, const Extent& extent,
                     std::span<const std::pair<Extent, PieceRef>> pieces)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void AddTry(std::vector<std::unique_ptr<DecodeTask>>& tries, ReadUnit& unit) const;
  void ReadNowOrRead(std::unique_ptr<DecodeTask> task);
  void ReadFromTask(std::span<Fetch* const> fetches);
  void SetData(ReadUnit& unit, std::span<std::byte> data) const;
  [[nodiscard]] std::uint64_t StoredBytes(const StepWork& work, std::uint32_t slot) const;
  void SubmitDecodes(StepWork& work, std::span<const std::uint32_t> slots)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void RunDecode(DecodeTask& task);
  void Observe(const DecodeTask& task) const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void DecodeSlot(DecodeTask& task, std::uint32_t slot, GatheredBytes& scratch);
  void ReadLargeAgain(DecodeTask& task) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void StartLargeDecodes() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void SampleFailed(StepWork& work, std::uint32_t slot, Status status)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void EndSample(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void SampleDone(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void ReleasePieces(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  [[nodiscard]] std::string Describe(const StepWork& work, std::uint32_t slot) const;

  // Block reads: engine_blocks.cc.
  void QueueBlockReads(Step& step) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  std::pair<BlockWork*, std::uint32_t> FindKept(std::uint64_t number, SampleId sample)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  const BlockWork* FindBlock(const Delivery& delivery) const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PrefetchKept(const Step& step) const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void ReleaseKept(const Release& release) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void Forget(BlockWork& block, KeptSample& sample) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void ForgetBlock(const BlockWork& block) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool HaveCome(std::uint64_t number) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool AwaitKept(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool TakeKept(BlockWork& block, std::uint32_t kept, StepWork& work, std::uint32_t slot)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void IssueBlockReads() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool BeginBlock() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PlanBlock(BlockWork& block) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void MakeBlockUnits(BlockWork& block, std::vector<BlockPiece> pieces)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  BlockUnit* MakeBlockUnit(BlockWork& block, const Extent& extent,
                           std::span<const BlockPiece> pieces)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void MakeEntryUnits(BlockWork& block, std::vector<BlockPiece>& pieces)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PlanKeeps(const BlockWork& block, BlockUnit& unit) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void RetryFromStorage(BlockUnit& unit) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PinBlock(BlockWork& block) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void BlockReadNowOrRead(BlockUnit& unit);
  void SubmitCopy(BlockUnit& unit);
  void CopyToCells(BlockUnit& unit) const;
  Status CopyToCells(const BlockUnit& unit, const BlockPiece& piece,
                     std::vector<std::byte>& scratch) const;
  void CopyToTiers(BlockUnit& unit);
  void OnBlockRead(BlockUnit& unit, Result<std::span<std::byte>> data)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void OnCopied(BlockUnit& unit) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void FinishKeeps(BlockUnit& unit) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void FinishUnit(BlockUnit& unit) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  std::optional<Row> FinishPiece(BlockWork& block, std::uint32_t kept, Status&& status)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void FinishBlock(BlockWork& block) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void ReleaseAllCells() HEADRACE_LOCKS_REQUIRED(state_mutex_);

  // Tiers: engine_tiers.cc.
  void FindInTiers(StepWork& work) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void FindInTiers(BlockWork& block) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool PlanFromTier(StepWork& work, std::uint32_t slot, std::vector<std::uint32_t>& resident)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool TakeEntry(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PlanEntryRead(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void PlanAgain(const Row& row, Tier& tier) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  [[nodiscard]] bool PassOver(const Tier::Pin& entry) const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void FallBack(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void KeepSample(DecodeTask& task, std::uint32_t slot);
  void DropKeep(StepWork& work, std::uint32_t slot) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void FinishKeep(SampleId sample, Tier* tier, const Status& status)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void CountUse(SampleId sample, const Tier::Pin& entry) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void IssueMoves() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void IssueAhead() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  std::unique_ptr<TierFill> NextAhead() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void IssueFill(std::unique_ptr<TierFill> fill) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool AcquireFill(TierFill& fill) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void ReadFill(TierFill& fill) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void OnFillRead(FillRead& read, Result<std::span<std::byte>> data)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void RunFill(TierFill& fill);
  void OnFilled(TierFill& fill, const Status& status) HEADRACE_LOCKS_REQUIRED(state_mutex_);

  [[nodiscard]] StallCause CurrentCause(const Lane& lane) const
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  Lane* FindHolding() const HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void AccountStall(Lane& lane, std::int64_t now_ns) HEADRACE_LOCKS_REQUIRED(state_mutex_);

  const Parts parts_;
  const EngineOptions options_;
  const std::vector<std::size_t> stored_fields_;  // schema positions that are read and decoded
  const Verifier verifier_;
  const SampleDecoder decoder_;
  const BatchMaker batch_maker_;
  const std::unique_ptr<Inbox<Event>> inbox_;
  std::stop_source stop_;  // requested by Stop()
  StorageSource storage_;
  TierSource entries_;
  Fetcher fetcher_;  // of the loop, but for Read()
  const std::unique_ptr<FetchClient> row_reads_;
  const std::unique_ptr<FetchClient> block_reads_;
  const std::unique_ptr<FetchClient> fill_reads_;
  std::atomic<std::uint32_t> inserts_ = 0;  // of rows, under way to tiers on disk
  std::atomic<int> decoding_ = 0;           // decode tasks that run

  mutable Mutex state_mutex_;
  std::unique_ptr<Order> order_ HEADRACE_GUARDED_BY(state_mutex_);
  // Pulled and not admitted; its deliveries are with the lanes.
  std::optional<Step> next_step_ HEADRACE_GUARDED_BY(state_mutex_);
  std::vector<std::unique_ptr<Lane>> lanes_ HEADRACE_GUARDED_BY(state_mutex_);
  // Block reads by number, from blocks_begin_ on; null where all is done.
  std::deque<std::unique_ptr<BlockWork>> blocks_ HEADRACE_GUARDED_BY(state_mutex_);
  std::uint64_t blocks_begin_ HEADRACE_GUARDED_BY(state_mutex_) = 0;
  std::uint64_t next_block_ HEADRACE_GUARDED_BY(state_mutex_) = 0;        // the next to take cells
  std::uint64_t come_ HEADRACE_GUARDED_BY(state_mutex_) = 0;              // all before it are done
  std::deque<BlockUnit*> block_units_ HEADRACE_GUARDED_BY(state_mutex_);  // to be issued
  std::unique_ptr<TierCache> tiers_ HEADRACE_GUARDED_BY(state_mutex_);    // null: none
  // Samples on their way into a tier, with the rows that wait for it.
  std::unordered_map<std::uint64_t, std::vector<Row>> keeping_ HEADRACE_GUARDED_BY(state_mutex_);
  // Samples that wait for scratch memory, with the bytes that each needs, by their step's deadline.
  std::multimap<std::uint64_t, std::pair<Row, std::uint64_t>> large_
      HEADRACE_GUARDED_BY(state_mutex_);
  std::vector<std::unique_ptr<TierFill>> fills_ HEADRACE_GUARDED_BY(state_mutex_);  // in flight
  std::uint64_t sequence_ HEADRACE_GUARDED_BY(state_mutex_) = 0;     // of the newest step admitted
  std::vector<LaneShare> shares_ HEADRACE_GUARDED_BY(state_mutex_);  // by lane, with a policy
  std::int64_t now_ns_ HEADRACE_GUARDED_BY(state_mutex_) = 0;  // when the machine began to run
  bool started_ HEADRACE_GUARDED_BY(state_mutex_) = false;
  bool plan_ended_ HEADRACE_GUARDED_BY(state_mutex_) = false;
  // Whether the release of batch memory calls this engine.
  bool hooked_ HEADRACE_GUARDED_BY(state_mutex_) = true;
  bool closed_ HEADRACE_GUARDED_BY(state_mutex_) = false;
  bool ended_ HEADRACE_GUARDED_BY(state_mutex_) = false;  // OnEnd() was called, or Stop()
  EngineStats stats_ HEADRACE_GUARDED_BY(state_mutex_);
};

}  // namespace headrace
