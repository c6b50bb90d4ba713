#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/step/step_work.h"
#include "engine/tiers/tier_filler.h"
#include "fetch/fetch.h"
#include "fetch/fetcher.h"
#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// Receives the results of a RowReader. Called by the loop, but for DecodeNow().
class RowReaderClient {
 public:
  virtual ~RowReaderClient() = default;

  // All bytes of these rows are in memory.
  virtual void OnRead(StepWork& work, std::span<const std::uint32_t> slots) = 0;
  // A row's bytes cannot be read.
  virtual void OnReadFailed(StepWork& work, std::uint32_t slot, Status status) = 0;
  // In a task that has read the bytes of task.slots: decodes them. OnDecoded() follows.
  virtual void DecodeNow(DecodeTask& task) = 0;
  virtual void OnDecoded(DecodeTask& task) = 0;
};

// Reads single samples: from extents and entries of tiers to bytes in memory, in the order of
// LaneQueues. If the page cache may have a sample, the task that decodes it also reads it.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it; the step owns its reads.
// Shutdown: the owner waits until nothing is in flight.
class RowReader final : public FetchClient {
 public:
  // One stored field of one row, and where it lies.
  using Piece = std::pair<Extent, PieceRef>;

  RowReader(LoopContext& loop, LaneQueues& queues, RowReaderClient& client)
      : loop_(loop), queues_(queues), client_(client) {}

  // Once: what reads for other nodes; null: nothing does.
  void Connect(TierFiller* tiers) { tiers_ = tiers; }

  // The reads of `pieces`, which it sorts by place: pieces near each other become one.
  RowReads MakeReads(StepWork& work, std::span<Piece> pieces);
  // The read of the entry of a row's sample, whose pieces are its parts; or of the sample, of
  // `bytes` bytes, from the row's node.
  RowRead* MakeEntryRead(StepWork& work, std::uint32_t slot);
  RowRead* MakeNodeRead(StepWork& work, std::uint32_t slot, std::uint64_t bytes);

  // Issues the reads of the lanes, as far as memory and reads in flight allow, and before each read
  // those that other nodes need earlier.
  void Issue();
  // Issues the queued reads of a row out of turn, if they are of storage: others may wait for
  // another node, and so never have memory. The caller flushes. Returns whether they have memory;
  // nothing: there are none.
  std::optional<Fetcher::Memory> IssueNow(StepWork& work, std::uint32_t slot);

  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override;

 private:
  [[nodiscard]] std::optional<WaitingReads> NextReads() const;
  void CountIssued(RowRead& read) const;
  void Start(RowRead& read, Fetcher::Memory memory) const;
  [[nodiscard]] bool InPlace(const Piece& piece) const;
  RowRead* MakeRead(StepWork& work, const Extent& extent, std::span<const Piece> pieces);
  RowRead& MakeSampleRead(StepWork& work, std::uint32_t slot, const FetchFrom& from);
  [[nodiscard]] bool MayBeTried(const RowRead& read) const;
  [[nodiscard]] bool InOneGo(const RowRead& read) const;
  void AddTry(std::vector<std::unique_ptr<DecodeTask>>& tries, RowRead& read) const;
  [[nodiscard]] std::span<std::byte> RoomOf(DecodeTask& task, const RowRead& read) const;
  void ReadNowOrRead(std::unique_ptr<DecodeTask> task);
  void SetData(RowRead& read, std::span<std::byte> data) const;
  void OnTried(DecodeTask& task);
  void ReadLargeAgain(DecodeTask& task);
  void ReadAgain(RowRead& read);

  LoopContext& loop_;
  LaneQueues& queues_;
  RowReaderClient& client_;
  TierFiller* tiers_ = nullptr;
};

}  // namespace headrace
