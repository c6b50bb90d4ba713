#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/loop/loop_context.h"
#include "engine/tiers/tier_cache.h"
#include "engine/tiers/tier_counts.h"
#include "fetch/fetch.h"
#include "fetch/held_samples.h"
#include "model/machine_model.h"
#include "tier/tier.h"

namespace headrace {

// Whose rows wait for samples on their way into a tier. Called by the loop.
class TierFillerClient {
 public:
  virtual ~TierFillerClient() = default;

  // The sample that `row` waits for has come into `tier`, or did not get there.
  virtual void OnArrived(RowRef row, Tier& tier) = 0;
  // The insert of `row`'s sample that went on after Insert() has ended: its bytes may go.
  virtual void OnInserted(RowRef row) = 0;
};

// Fills the tiers of a node as its TierCache wants it, and counts what comes out of them.
//
// Tiers hold samples as they are stored. A sample that the placement assigns to a tier is inserted
// when a row or a block reads it from storage; it is fetched ahead while there is nothing else to
// read; or it is moved from another tier. If a tier fails to return or to accept a sample, storage
// serves it: tiers change where bytes come from, never which bytes. Rows wait for a sample that is
// being inserted; that insert waits only for a read, a task and the tier.
//
// Thread safety: called by the engine's loop, one call at a time; Insert() from any thread.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: the owner waits until nothing is in flight.
class TierFiller final : public FetchClient {
 public:
  // `model` says when storage is faster than a tier; null: never.
  TierFiller(LoopContext& loop, TierCache& cache, const MachineModel* model,
             TierFillerClient& client);
  ~TierFiller() override;

  // The entry of a sample in the tier that is to have it; empty: there is none. Then `nodes`, if it
  // is not null, gets the nodes that the plan takes the sample from: TierCache::HoldersOf().
  [[nodiscard]] Tier::EntryRef Find(SampleId sample, Holders* nodes = nullptr) const {
    Tier::EntryRef entry = cache_.Find(sample);
    if (!entry && nodes != nullptr) *nodes = cache_.HoldersOf(sample);
    return entry;
  }
  // Whether storage gives the entry's bytes faster than the tier that has them.
  [[nodiscard]] bool PassesOver(const Tier::EntryRef& entry) const;
  // Has a sample brought into the tier that is to have it: see Engine::Bring().
  void Bring(SampleId sample, TakenEntry done);
  // The run has ended: nothing is brought any more.
  void DropBrought();

  // The entry of a sample is used: counts it. Returns the tier's number.
  TierNumber CountUse(SampleId sample, const Tier::EntryRef& entry);

  // Whether the sample is on its way into a tier; then the client hears of `row`.
  bool Await(SampleId sample, RowRef row);

  // A row reads the sample from storage, or its `node_bytes` bytes from another node: counts it.
  // Returns the tier that takes it on the way: Insert(), then Finish(), or Finish() alone where it
  // could not be read. Null: none does.
  Tier* TierForMiss(SampleId sample, bool passed_over, std::uint64_t node_bytes = 0);
  // The same for a sample that its tier, or another node, could not give.
  Tier* FallBack(SampleId sample, bool from_node);
  // Gives the stored bytes of a row's sample, which were verified, to `tier`. Returns how that
  // ended; nothing: it goes on, the bytes stay, and the loop calls Finish() and the client.
  std::optional<Status> Insert(Tier& tier, SampleId sample,
                               std::vector<std::span<const std::byte>> parts, RowRef row);
  // A sample is in its tier, or will not be: goes on with the rows that wait for it.
  void Finish(SampleId sample, Tier& tier, const Status& status);

  // The same for samples that come with a block: the caller inserts them itself, and counts here.
  [[nodiscard]] Tier* Wanted(SampleId sample) const { return cache_.Wanted(sample); }
  void Count(std::uint64_t TierCounts::*what, std::uint64_t by = 1) { counts_.*what += by; }

  // Moves samples from tier to tier: at once, for they keep room in the tier that they leave. What
  // cannot be moved now is given up.
  void IssueMoves();
  // Reads what is to be brought; and fetches ahead if the engine is `idle`: there is nothing to
  // read that somebody waits for.
  void IssueReads(bool idle);

  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override;

  [[nodiscard]] TierCounts counts() const;

 private:
  struct Fill;
  struct FillRead;

  void IssueBrought();
  void IssueAhead();
  std::unique_ptr<Fill> NextAhead();
  [[nodiscard]] std::unique_ptr<Fill> Make(const TierCache::Ahead& ahead) const;
  void AnswerBrought(SampleId sample, const Status& status);
  bool Acquire(Fill& fill);
  void Issue(std::unique_ptr<Fill> fill);
  void Run(Fill& fill);
  Status Verify(const Fill& fill, std::vector<std::span<const std::byte>>& parts) const;
  void OnFilled(Fill& fill, const Status& status);

  LoopContext& loop_;
  TierCache& cache_;
  const MachineModel* const model_;
  TierFillerClient& client_;
  std::atomic<std::uint32_t> inserts_ = 0;  // of rows, under way to tiers on disk
  // Samples on their way into a tier, with the rows that wait for them.
  std::unordered_map<std::uint64_t, std::vector<RowRef>> inserting_;
  // Who waits for a sample on another node's behalf; it is in inserting_, or in to_bring_.
  std::unordered_multimap<std::uint64_t, TakenEntry> brought_;
  std::deque<SampleId> to_bring_;
  std::vector<std::unique_ptr<Fill>> fills_;  // in flight
  TierCounts counts_;
};

}  // namespace headrace
