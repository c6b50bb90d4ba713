#pragma once

// A C++ program starts here: it opens an index (index.h), or builds one (folder_index.h,
// index_writer.h), states its options (loader_options.h), and takes batches (batch.h) from a
// Loader. examples/cpp does so. Errors are values (status.h).

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/batch/batch.h"
#include "index/index.h"
#include "loader/batch_source.h"
#include "loader/config/loader_options.h"
#include "model/machine_model.h"
#include "observe/loader_stats.h"
#include "plan/order_options.h"

namespace headrace {

// Loads batches of one rank, in this process.
//
// Thread safety, ownership, shutdown: as for any BatchSource.
class Loader final : public BatchSource {
 public:
  // Errors: InvalidArgument     invalid options, which the message names; a budget below one batch
  //         FailedPrecondition  io_uring was requested and cannot be used; a tier's folder
  //                             is in use
  //         any of reading      a store of no storage, which reads some samples
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
