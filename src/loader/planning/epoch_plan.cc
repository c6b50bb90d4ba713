#include "loader/planning/epoch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "engine/loop/engine_options.h"
#include "index/index.h"
#include "loader/config/resolved_order.h"

namespace headrace {
namespace {

// In pieces no larger than the engine reads. Of nothing there is none: a model knows no such read.
void Count(std::uint64_t bytes, ReadCounts& counts) {
  const std::uint64_t piece = EngineOptions().block_read_bytes_max;
  if (bytes / piece != 0) counts[piece] += bytes / piece;
  if (bytes % piece != 0) ++counts[bytes % piece];
}

}  // namespace

Result<std::unique_ptr<EpochPlanner>> EpochPlanner::Make(std::shared_ptr<const Index> index,
                                                         LoaderOptions options) {
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, std::move(options)));
  std::unique_ptr<EpochPlanner> planner(new EpochPlanner(std::move(index), std::move(config)));
  HEADRACE_RETURN_IF_ERROR(planner->Begin());
  return planner;
}

Status EpochPlanner::Begin() {
  HEADRACE_ASSIGN_OR_RETURN(order_, config_.order->MakeOrder(Position()));
  next_ = order_->Next();
  const TiersSpec& tiers = config_.options.tiers;
  if (tiers.tiers.empty()) return Status();
  HEADRACE_ASSIGN_OR_RETURN(const PlacementFactory* const factory,
                            Placements().Get(tiers.placement));
  HEADRACE_ASSIGN_OR_RETURN(room_, MakeTierRoom(index_, tiers, *config_.order));
  HEADRACE_ASSIGN_OR_RETURN(
      placement_,
      factory->Make(MakePlacementRequest(config_.order, room_, tiers.horizon_epochs, Position())));
  return Status();
}

Result<std::optional<ExpectedInflation>> EpochPlanner::Inflation() const {
  return config_.order->Inflation(*index_);
}

std::optional<PlannedEpoch> EpochPlanner::Next() {
  if (!next_.has_value()) return std::nullopt;
  PlannedEpoch epoch{.epoch = next_->epoch};
  epoch.tiers.resize(config_.options.tiers.tiers.size());
  while (next_.has_value() && next_->epoch == epoch.epoch) {
    AddStep(*next_, epoch);
    next_ = order_->Next();
  }
  return epoch;
}

// Uses are those of the block reads, then of what is delivered without one.
void EpochPlanner::AddStep(const Step& step, PlannedEpoch& epoch) {
  std::optional<PlacedStep> placed;
  if (placement_ != nullptr) {
    placed = placement_->Next();
    const Position at{.epoch = step.epoch, .step = step.step};
    HEADRACE_CHECK(placed.has_value() && placed->at == at);
  }
  std::size_t use = 0;
  const auto add = [&](std::uint64_t bytes) {
    AddUse(placed.has_value() ? &placed->uses.at(use++) : nullptr, bytes, epoch);
  };
  for (const BlockRead& read : step.reads) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t kept : read.kept) {
      bytes += BytesOf(SampleId{Raw(read.first) + kept}, 1);
    }
    add(read.kept.empty() ? BytesOf(read.first, read.count) : bytes);
  }
  for (const Delivery& delivery : step.deliveries) {
    const std::uint64_t bytes = BytesOf(delivery.sample, 1);
    ++epoch.samples;
    epoch.sample_bytes += bytes;
    if (delivery.block_read == kNoBlockRead) add(bytes);
  }
  if (placed.has_value()) AddOps(*placed, epoch);
}

void EpochPlanner::AddUse(const PlannedUse* use, std::uint64_t bytes, PlannedEpoch& epoch) {
  const std::optional<MachineModel>& model = config_.options.model;
  // Where the order reads blocks nothing is fetched ahead: the first use brings it.
  const bool awaited =
      use != nullptr && config_.order->reads_blocks() && awaited_.erase(use->block) != 0;
  if (use == nullptr || use->tier == kNoTier || awaited ||
      (model.has_value() && StorageIsFaster(*model, use->tier, static_cast<double>(bytes)))) {
    Count(bytes, epoch.storage);
    epoch.at_peers += use != nullptr && use->at_peer;
    return;
  }
  Count(bytes, epoch.tiers[use->tier].reads);
}

void EpochPlanner::AddOps(const PlacedStep& placed, PlannedEpoch& epoch) {
  for (const CacheOp& op : placed.ops) {
    if (op.to == kNoTier) continue;
    const BlockMap::Block block = room_.blocks->block(op.block);
    const std::uint64_t bytes = BytesOf(block.first, block.count);
    Count(bytes, epoch.tiers[op.to].writes);
    if (op.from != kNoTier) {
      Count(bytes, epoch.tiers[op.from].reads);
    } else if (op.ahead && config_.order->reads_blocks()) {
      awaited_.insert(op.block);
    } else if (op.ahead) {
      Count(bytes, epoch.storage);  // No use of the step brings it.
    }
  }
}

std::uint64_t EpochPlanner::BytesOf(SampleId first, std::uint32_t count) const {
  std::vector<std::uint64_t> bytes(count);
  index_->SampleBytes(first, bytes);
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

}  // namespace headrace
