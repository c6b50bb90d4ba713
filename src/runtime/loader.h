#pragma once

// runtime/ puts the parts together: a configuration becomes threads, stores, budgets and an engine.
// The only place that starts threads. What C++ programs, the Python module and the node process
// use.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/image_codec.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/engine_stats.h"
#include "index/index.h"
#include "model/machine_model.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/order_options.h"
#include "plan/quality/labels.h"
#include "runtime/batch_queue.h"
#include "runtime/budget.h"
#include "runtime/node_tiers.h"
#include "runtime/open_store.h"

namespace headrace {

// A field of the dataset as it is to appear in batches.
struct LoaderField {
  std::string name;
  std::optional<ImageTransform> image;  // for images; without it, their encoded bytes
};

// Which order, and what fixes it beside the job.
struct OrderSpec {
  std::string name = "exact";
  // Given; defaults come from the order, the dataset, the memory. Orders that read blocks have one
  // more here, "block_samples": neighbours read together; 0, the default: see MakeIndexBlocks.
  OrderParameters parameters;
  SampleTable homes;
  SampleTable costs;
};

struct LoaderOptions {
  std::vector<LoaderField> fields;  // in this order; empty: every field of the dataset, as stored
  OrderOptions job;                 // sample_count is filled in
  OrderSpec order;
  std::uint64_t memory_bytes =
      0;  // budget of everything; 0: what is useful, a quarter of RAM at most
  std::uint32_t batches_ahead = 0;  // 0: what the memory allows
  int threads = 0;                  // that decode; 0: one a usable core
  IoChoice io = IoChoice::kAuto;
  OnError on_error = OnError::kRaise;
  bool verify = true;  // samples against their checksums
  TiersSpec tiers;
  // What was measured of the machine, tiers in the order of `tiers`: reads come from what is
  // fastest. Nothing: tiers are faster than storage.
  std::optional<MachineModel> model;
};

// Where one row of a step comes from.
struct PlannedRow {
  std::uint32_t slot = 0;
  SampleId sample{};
  std::string field;
  std::string source;  // "storage"; "block" where it comes with one; "index" for inline values;
                       // the name of the tier that the plan takes it from
  std::string actual;  // where it did come from; empty: it was not delivered, or long ago
  std::string object;  // its path
  ByteRange range;     // of the object
};

// What the consumer took. The same in every run of a plan: the engine's own counts are ahead of it
// by what is ready.
struct Delivered {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t substituted = 0;            // samples replaced
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
};

// One tier: what it is, and what it did.
struct NamedTierStats {
  std::string name;
  TierStats stats;
};

struct LoaderStats {
  Delivered delivered;
  EngineStats engine;  // over all runs
  StoreStats store;
  Budget budget;
  int threads = 0;
  std::int64_t running_ns = 0;         // summed over runs, from start to end or now
  std::int64_t device_read_bytes = 0;  // of the process since the loader was opened; -1: unknown
  std::uint64_t index_bytes = 0;       // of the mapped index file
  std::vector<NamedTierStats> tiers;   // fastest first
};

// Loads batches of one rank. A *run* is a plan in progress: started at a position, it goes on,
// epoch after epoch, until it ends, fails, is stopped, or another is started.
//
// Thread safety: every method may be called from any thread; Next() from one at a time.
// Ownership: batches handed out may outlive the loader.
// Shutdown: the destructor stops the run and waits for its reads. In a forked child it leaves
// everything to the parent, and every method is FailedPrecondition.
class Loader {
 public:
  // Errors: InvalidArgument     options that cannot be, named; a budget below one batch
  //         FailedPrecondition  io_uring was asked for and cannot be used; a tier's folder is
  //                             somebody else's
  //         any of reading      IoChoice::kSynthetic, which reads some samples
  static Result<std::unique_ptr<Loader>> Open(std::shared_ptr<const Index> index,
                                              LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  [[nodiscard]] std::span<const BatchField> schema() const;
  [[nodiscard]] std::uint64_t steps_per_epoch() const;
  [[nodiscard]] const Index& index() const;
  // Of the order, every default filled in: what a saved state has to hold.
  [[nodiscard]] OrderParameters order_parameters() const;
  // Of the order, on this dataset; nothing where none is to be expected, or no closed form is
  // known.
  [[nodiscard]] const std::optional<ExpectedInflation>& expected_inflation() const;

  // Ends the run, if there is one, and starts one of the loader's own order at `position`.
  //
  // Errors: those of OrderFactory::Make
  Status Start(Position position);

  // The same with an order somebody else decided: one epoch. Only where the loader's own order is
  // `exact`.
  //
  // Errors: OutOfRange       an id that the dataset does not have
  //         InvalidArgument  batch ends that do not ascend to the number of ids, an epoch of 2^24
  //         up
  Status StartList(ListOrderOptions list);

  // The next batch of the run; waits for it `timeout_ns` at most (negative: as long as it takes).
  //
  // Errors: FailedPrecondition  no run; Cancelled  the run was stopped
  //         else why the run cannot go on; it has then ended
  Result<BatchQueue::Taken> Next(std::int64_t timeout_ns);

  // Ends the run. Its batches not taken are lost.
  void Stop();

  // Where the rows of one step of the loader's own order come from. Reads nothing; with tiers plans
  // the run again up to there.
  //
  // Errors: those of OrderFactory::Make
  Result<std::vector<PlannedRow>> Explain(Position position) const;
  // The same for rows of an order somebody else decided.
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const;

  [[nodiscard]] Result<LoaderStats> stats() const;
  // Of stats() the tiers alone, for a look between batches.
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const;

 private:
  class Impl;
  explicit Loader(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
