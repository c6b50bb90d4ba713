#pragma once

// A C++ program starts here: it opens an index (index.h), or builds one (folder_index.h,
// index_writer.h), states its options (loader_options.h), and takes batches (batch.h) from a
// Loader. examples/cpp does so. Errors are values (status.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/loader_options.h"
#include "headrace/loader_stats.h"
#include "headrace/machine_model.h"
#include "headrace/members.h"
#include "headrace/order_options.h"
#include "headrace/status.h"

namespace headrace {

// What is fixed once a session is open, for every rank of it.
struct SessionFacts {
  std::vector<BatchField> schema;  // of batches; at the client of a node process without codecs
  std::uint64_t steps_per_epoch = 0;
  // The order's parameters with all defaults filled in. A saved state contains them.
  OrderParameters order_parameters;
  // The origin of each parameter, in words.
  OrderParameters order_origins;
  // The inflation that the order is expected to cause on this dataset. std::nullopt: none is
  // expected, or no closed form is known.
  std::optional<ExpectedInflation> inflation;
};
HEADRACE_MEMBERS(SessionFacts, schema, steps_per_epoch, order_parameters, order_origins, inflation)

// The source of one rank's batches: a Loader in this process, or the node process of several ranks.
// A *run* is one pass over the plan: it starts at a position and continues, epoch after epoch,
// until it ends, fails, is stopped, or another run starts.
//
// Thread safety: every method may be called from any thread; Next() by one thread at a time.
// Ownership: batches handed out may outlive the source.
// Shutdown: the destructor stops the run and waits a limited time for outstanding work: one second
// for reads of storage; the memory of reads that take longer stays until they end. In a forked
// child the destructor leaves everything to the parent, and every method that returns a Status or a
// Result, except decode_times(), returns FailedPrecondition.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  [[nodiscard]] virtual const SessionFacts& facts() const = 0;

  // Ends the current run, if there is one, and starts a run of the source's own order at
  // `position`. If this fails, the previous run has ended, too.
  //
  // Errors: Cancelled        Stop() or another Start() was called meanwhile, or Abandon() before
  //         OutOfRange       no such position
  //         InvalidArgument  a parameter of the order, with the samples that it has now
  virtual Status Start(Position position) = 0;

  // The same with an order that the caller decided: one epoch. Only if the source's own order is
  // `exact`.
  //
  // Errors: OutOfRange       an id that the dataset does not have
  //         InvalidArgument  batch ends that do not ascend to the number of ids, an epoch of 2^24
  //         up
  virtual Status StartList(ListOrderOptions list) = 0;

  // Returns the next batch of the run. Waits at most `timeout_ns` for it (negative: no limit).
  //
  // Errors: FailedPrecondition  no run; Cancelled  the run was stopped
  //         the error that ended the run
  virtual Result<TakenBatch> Next(std::int64_t timeout_ns) = 0;

  // Ends the run and drops its batches that were not taken. Waits up to `timeout_ns` for its reads
  // (negative: no limit). Returns false if some reads are still in flight: Start() would wait for
  // them. A run that is still being planned does not start; false then means that planning still
  // runs.
  virtual bool Stop(std::int64_t timeout_ns = -1) = 0;

  // Returns `ns` minus the time since the run was first asked to end; `ns` if nobody asked, or the
  // run has ended. So several waits for the same end share one deadline.
  [[nodiscard]] virtual std::int64_t LeftOf(std::int64_t ns) const = 0;

  // Start() and the destructor stop waiting, now and in later calls. Call it before closing.
  virtual void Abandon() = 0;

  // Tells where the rows of one step of the source's own order come from. Reads nothing. With
  // tiers, plans the run again up to that step.
  //
  // Errors: OutOfRange       no such step
  //         InvalidArgument  as for Start()
  virtual Result<std::vector<PlannedRow>> Explain(Position position) const = 0;
  // The same for samples of an order that the caller decided.
  virtual Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const = 0;

  [[nodiscard]] virtual Result<LoaderStats> stats() const = 0;
  // The tiers' part of stats(); cheap enough to call between batches.
  [[nodiscard]] virtual std::vector<NamedTierStats> tier_stats() const = 0;
  // Times of the newest batches that all ranks of the node took, a few thousand of each rank.
  [[nodiscard]] virtual Result<std::vector<StepTime>> step_times() const = 0;
  // Measured preprocessing times, for LoaderOptions::preprocess of a later run.
  [[nodiscard]] virtual Result<std::vector<PreprocessRow>> decode_times() const = 0;
};

// Loads batches of one rank, in this process.
//
// Thread safety, ownership, shutdown: as for any BatchSource.
class Loader final : public BatchSource {
 public:
  // Errors: InvalidArgument     invalid options, which the message names; a budget below one batch
  //         FailedPrecondition  io_uring was requested and cannot be used; a tier's folder
  //                             is in use
  //         any of reading      the synthetic store, which reads some samples
  static Result<std::unique_ptr<Loader>> Open(std::shared_ptr<const Index> index,
                                              LoaderOptions options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  [[nodiscard]] const SessionFacts& facts() const override;
  [[nodiscard]] const Index& index() const;

  Status Start(Position position) override;
  Status StartList(ListOrderOptions list) override;
  // The calling thread runs decode tasks instead of waiting idle.
  Result<TakenBatch> Next(std::int64_t timeout_ns) override;
  bool Stop(std::int64_t timeout_ns = -1) override;
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const override;
  void Abandon() override;

  Result<std::vector<PlannedRow>> Explain(Position position) const override;
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const override;
  [[nodiscard]] Result<LoaderStats> stats() const override;
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const override;
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const override;
  [[nodiscard]] Result<std::vector<PreprocessRow>> decode_times() const override;

 private:
  struct Parts;  // the session, and its current run

  explicit Loader(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;  // never null
};

}  // namespace headrace
