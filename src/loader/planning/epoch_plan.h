#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "headrace/status.h"
#include "loader/config/loader_config.h"
#include "loader/planning/tier_room.h"
#include "model/source_times.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "plan/quality/labels.h"

namespace headrace {

// The number of reads by size. A read is a sample, or a piece of a block if the order reads blocks.
using ReadCounts = std::map<std::uint64_t, std::uint64_t>;

// The planned reads of one epoch by source, for the job's ranks on this node. Bytes are those of
// stored samples.
struct PlannedEpoch {
  struct TierPlan {
    ReadCounts reads;
    ReadCounts writes;  // inserts, and moves from another tier
  };

  std::uint64_t epoch = 0;
  std::uint64_t samples = 0;       // delivered
  std::uint64_t sample_bytes = 0;  // of the delivered samples
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
      : index_(std::move(index)), config_(std::move(config)) {}
  Status Begin();
  void AddStep(const Step& step, PlannedEpoch& epoch);
  // A use of `samples` samples of `bytes` bytes together.
  struct Use {
    const PlannedUse* planned = nullptr;  // null: there are no tiers
    std::uint64_t bytes = 0;
    std::uint64_t samples = 1;
  };
  void AddUse(const Use& use, PlannedEpoch& epoch);
  [[nodiscard]] Source::Kind SourceOf(const Use& use);
  void AddOps(const PlacedStep& placed, PlannedEpoch& epoch);
  [[nodiscard]] std::uint64_t BytesOf(SampleId first, std::uint32_t count) const;

  const std::shared_ptr<const Index> index_;
  const LoaderConfig config_;
  TierRoom room_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Placement> placement_;  // null: no tiers
  std::optional<SourceTimes> times_;      // by the options' model
  std::optional<Step> next_;
  // Blocks planned for tiers that no read has fetched yet.
  std::unordered_set<std::uint32_t> awaited_;
};

}  // namespace headrace
