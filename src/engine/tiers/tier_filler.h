#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/loop/loop_context.h"
#include "engine/tiers/source_choice.h"
#include "engine/tiers/tier_cache.h"
#include "fetch/fetch.h"
#include "fetch/held_samples.h"
#include "fetch/sample_chain.h"
#include "headrace/ids.h"
#include "headrace/machine_model.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "tier/tier.h"

namespace headrace {

// Owner of rows that wait for samples on their way into a tier. Called by the loop.
class TierFillerClient {
 public:
  virtual ~TierFillerClient() = default;

  // The insert into `tier` of the sample that `row` waits for has ended, with success or not.
  virtual void OnArrived(RowRef row, Tier& tier) = 0;
  // The insert of `row`'s sample that continued after Insert() has ended: its bytes may be freed.
  virtual void OnInserted(RowRef row) = 0;
  // Another node needs the sample that `row` is to read: begins its reads if they are queued, and
  // of storage. The caller flushes. Returns whether they have memory; nothing: there are none.
  virtual std::optional<Fetcher::Memory> IssueNow(RowRef row) = 0;
};

// Fills the tiers of a node as its TierCache plans, and counts the uses of their samples.
//
// Tiers hold samples as LoopContext::entry_form says. A sample that the placement assigns to a tier
// is inserted when a row or a block reads it from storage; it is fetched ahead while there is
// nothing else to read; or it is moved from another tier. If a tier fails to return or to accept a
// sample, storage serves it: tiers change where bytes come from, never which bytes. Rows wait for a
// sample that is being inserted; that insert waits only for a read, a task and the tier.
//
// Thread safety: called by the engine's loop, one call at a time; Insert() from any thread.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: the owner waits until nothing is in flight.
class TierFiller final : public FetchClient {
 public:
  // `model` says which source is the fastest; null: see SourceChoice.
  TierFiller(LoopContext& loop, TierCache& cache, const MachineModel* model,
             TierFillerClient& client);
  ~TierFiller() override;

  // The sources of a sample of the step that was planned: its entry in the tier that is to have it;
  // if `asks` and that has none, the nodes that the plan names. Without those that are slower than
  // a later one.
  [[nodiscard]] SampleChain Find(SampleId sample, bool asks = false) {
    Tier::EntryRef entry = cache_.Find(sample);
    if (choice_.by_model()) return Choose(sample, std::move(entry), asks);
    if (entry || !asks) return {std::move(entry), {}};
    return {{}, cache_.HoldersOf(sample).nodes};
  }
  // Brings a sample into the tier that the plan assigns: see Engine::Bring().
  void Bring(SampleId sample, std::uint64_t deadline, TakenEntry done);
  // This node's own next read has `deadline`: first reads what other nodes need earlier. Neither
  // side starves: each gets at least one of four reads. The caller flushes.
  void BringBefore(std::uint64_t deadline);
  // The run has ended: brings no more. Returns the waiting requests, which the caller must answer.
  [[nodiscard]] std::vector<TakenEntry> DropBrought();

  // The entry of a sample is used: counts it. Returns the tier's number.
  TierNumber CountUse(SampleId sample, const Tier::EntryRef& entry);

  // Whether the sample is on its way into a tier; then the client is called for `row`.
  bool Await(SampleId sample, RowRef row);

  // `row` reads the sample from storage, or its `node_bytes` bytes from another node: counts it.
  // Returns the tier that takes it on the way: Insert(), then Finish(), or Finish() alone where it
  // could not be read. Null: none does, or it has it.
  Tier* TierForMiss(SampleId sample, RowRef row, std::uint64_t node_bytes = 0);
  // The same for a sample that `failed` could not return.
  Tier* FallBack(SampleId sample, RowRef row, SampleSource failed);
  // Gives the stored bytes of a row's sample, which were verified, to `tier`. Returns how that
  // ended; nothing: it goes on, the bytes stay, and the loop calls Finish() and the client.
  std::optional<Status> Insert(Tier& tier, SampleId sample,
                               std::vector<std::span<const std::byte>> parts, RowRef row);
  // A sample is in its tier, or will not be: goes on with the rows that wait for it.
  void Finish(SampleId sample, Tier& tier, const Status& status);

  // The same for samples that come with a block: the caller inserts them itself, and counts here.
  // `entries`, of all of them, gets those of a tier that is to give them; stays empty if there are
  // none.
  std::optional<Holders> FindForBlock(const BlockRead& block, std::uint32_t samples, bool asks,
                                      std::vector<Tier::EntryRef>& entries);
  // The tier that the plan assigns and that does not have it.
  [[nodiscard]] Tier* TierToFill(SampleId sample) const;
  void Count(std::uint64_t TierCounts::*what, std::uint64_t by = 1) { counts_.*what += by; }

  // Moves samples from tier to tier, at once, since they take room in the tier that they leave.
  // Gives up those that cannot be moved now.
  void IssueMoves();
  // Reads the samples to bring; fetches ahead if the engine is `idle`: no read that somebody waits
  // for is left to issue.
  void IssueReads(bool idle);

  [[nodiscard]] TierCounts counts() const;

 private:
  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override;

  struct Fill;
  struct FillRead;

  // A sample on its way into a tier.
  struct Inserting {
    std::optional<RowRef> reader;  // nothing: a fill reads it
    std::vector<RowRef> waiting;
  };

  SampleChain Choose(SampleId sample, Tier::EntryRef entry, bool asks);
  enum class Issued : std::uint8_t { kRead, kNoRead, kNoMemory };
  Issued IssueNextBrought();
  Issued IssueBrought(SampleId sample, Tier& tier, std::uint64_t deadline);
  // Before its first step the plan says nothing yet.
  [[nodiscard]] bool may_bring() const { return !to_bring_.empty() && loop_.sequence > 0; }
  void IssueAhead();
  std::unique_ptr<Fill> NextAhead();
  [[nodiscard]] Result<std::unique_ptr<Fill>> Make(const TierCache::Ahead& ahead,
                                                   std::uint64_t deadline);
  void AnswerBrought(SampleId sample, const Status& status);
  std::vector<Fetch*> Prepare(Fill& fill);
  bool AcquireWithin(Fill& fill);
  void Issue(std::unique_ptr<Fill> fill);
  void Run(Fill& fill);
  Status Verify(const Fill& fill, std::vector<std::span<const std::byte>>& parts) const;
  void OnFilled(Fill& fill, const Status& status);

  LoopContext& loop_;
  TierCache& cache_;
  SourceChoice choice_;
  TierFillerClient& client_;
  std::atomic<std::uint32_t> inserts_ = 0;  // of rows, under way to tiers on disk
  std::unordered_map<std::uint64_t, Inserting> inserting_;
  // Requests of other nodes that wait for a sample in inserting_ or to_bring_.
  std::unordered_multimap<std::uint64_t, TakenEntry> brought_;
  std::multimap<std::uint64_t, SampleId> to_bring_;  // by deadline
  std::uint32_t brought_in_row_ = 0;                 // since a read of this node's own, and ...
  std::uint32_t own_in_row_ = 0;                     // ... of those since one of these
  std::vector<std::unique_ptr<Fill>> fills_;         // in flight
  std::size_t bringing_ = 0;                         // of these
  TierCounts counts_;
};

}  // namespace headrace
