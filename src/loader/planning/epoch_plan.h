#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/loop/engine_options.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "loader/config/loader_config.h"
#include "loader/planning/tier_room.h"
#include "model/source_times.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "plan/quality/labels.h"

namespace headrace {

// The number of reads by size. Of storage they are those that the engine makes, with the gaps that
// it reads, too. Of a tier or another node a read is a sample, or a piece of a block.
using ReadCounts = std::map<std::uint64_t, std::uint64_t>;

// The planned reads of one epoch by source, for the job's ranks on this node.
struct PlannedEpoch {
  struct TierPlan {
    ReadCounts reads;
    ReadCounts writes;  // inserts, and moves from another tier
  };

  std::uint64_t epoch = 0;
  std::uint64_t samples = 0;       // delivered
  std::uint64_t sample_bytes = 0;  // of the delivered samples, as they are stored
  ReadCounts storage;
  std::vector<TierPlan> tiers;  // fastest first
  ReadCounts peers;             // from other nodes, if the model has a link to them
  std::uint64_t at_peers = 0;   // reads from storage of blocks that a peer's tier has
};

// Plans a loader's job epoch by epoch. Reads no samples.
//
// Thread safety: none.
class EpochPlanner {
 public:
  // Errors: those of ResolveConfig, and of making its order and placement
  static Result<std::unique_ptr<EpochPlanner>> Make(std::shared_ptr<const Index> index,
                                                    const LoaderOptions& options);

  // Returns the next epoch; std::nullopt after the last one.
  std::optional<PlannedEpoch> Next();

  [[nodiscard]] const LoaderConfig& config() const { return config_; }

  // The expected effect of the job's order on the labels of a batch, as in Loader.
  //
  // Errors: those of ResolvedOrder::Inflation
  [[nodiscard]] Result<std::optional<ExpectedInflation>> Inflation() const;

 private:
  EpochPlanner(std::shared_ptr<const Index> index, LoaderConfig config)
      : index_(std::move(index)), config_(std::move(config)), engine_(config_.engine_options()) {}
  Status Begin();
  void AddStep(const Step& step, PlannedEpoch& epoch);
  // A use of `samples` samples of `bytes` bytes together.
  struct Use {
    const PlannedUse* planned = nullptr;  // null: there are no tiers
    std::uint64_t bytes = 0;
    std::uint64_t samples = 1;
  };
  // Returns whether storage serves it: then its reads are yet to be counted.
  bool AddUse(const Use& use, PlannedEpoch& epoch);
  // A field's value of a sample: which field of the schema, and where it lies.
  struct Piece {
    std::size_t field = 0;
    SampleId sample{};
    Extent extent;
  };
  void AddPieces(SampleId sample, std::vector<Piece>& pieces) const;
  // Counts the reads of pieces that are wanted together, of rows or of a block; empties `pieces`.
  void CountRows(std::vector<Piece>& pieces, ReadCounts& counts) const;
  void CountBlock(const BlockRead& read, ReadCounts& counts) const;
  void CountFill(SampleId sample, ReadCounts& counts) const;
  void Count(std::uint64_t bytes, ReadCounts& counts) const;
  [[nodiscard]] Source::Kind SourceOf(const Use& use);
  void AddOps(const PlacedStep& placed, PlannedEpoch& epoch);
  [[nodiscard]] std::uint64_t BytesOf(SampleId first, std::uint32_t count) const;
  [[nodiscard]] std::uint64_t EntryBytes(std::uint32_t block, std::uint64_t stored_bytes) const;

  const std::shared_ptr<const Index> index_;
  const LoaderConfig config_;
  const EngineOptions engine_;
  TierRoom room_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Placement> placement_;  // null: no tiers
  std::optional<SourceTimes> times_;      // by the options' model
  std::optional<Step> next_;
  std::ptrdiff_t stored_fields_ = 0;  // of the schema
  // Blocks planned for tiers that no read has fetched yet.
  std::unordered_set<std::uint32_t> awaited_;
};

}  // namespace headrace
