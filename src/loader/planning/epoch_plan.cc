#include "loader/planning/epoch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "engine/loop/engine_options.h"
#include "headrace/index.h"
#include "loader/config/resolved_order.h"
#include "plan/placement/readers/storage_readers.h"

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
                                                         const LoaderOptions& options) {
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, options));
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
  PlacementRequest request =
      MakePlacementRequest(config_.order, room_, tiers.horizon_epochs, Position());
  const std::optional<MachineModel>& model = config_.options.model;
  const bool asks = model.has_value() && model->link.has_value();
  request.fastest_peer = asks;
  HEADRACE_ASSIGN_OR_RETURN(placement_, factory->Make(request));
  if (!model.has_value()) return Status();
  times_.emplace(*model);
  HEADRACE_ASSIGN_OR_RETURN(placement_, MakeCountedPlacement(std::move(placement_), request, asks));
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
    if (times_.has_value()) times_->SetStorageNodes(placement_->StorageReaders().value_or(1));
  }
  std::size_t use = 0;
  const auto add = [&](std::uint64_t bytes, std::uint64_t samples) {
    AddUse({.planned = placed.has_value() ? &placed->uses.at(use++) : nullptr,
            .bytes = bytes,
            .samples = samples},
           epoch);
  };
  for (const BlockRead& read : step.reads) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t kept : read.kept) {
      bytes += BytesOf(SampleId{Raw(read.first) + kept}, 1);
    }
    if (read.kept.empty()) {
      add(BytesOf(read.first, read.count), read.count);
    } else {
      add(bytes, read.kept.size());
    }
  }
  for (const Delivery& delivery : step.deliveries) {
    const std::uint64_t bytes = BytesOf(delivery.sample, 1);
    ++epoch.samples;
    epoch.sample_bytes += bytes;
    if (delivery.block_read == kNoBlockRead) add(bytes, 1);
  }
  if (placed.has_value()) AddOps(*placed, epoch);
}

void EpochPlanner::AddUse(const Use& use, PlannedEpoch& epoch) {
  switch (SourceOf(use)) {
    case Source::Kind::kTier:
      return Count(use.bytes, epoch.tiers[use.planned->tier].reads);
    case Source::Kind::kPeer:  // Sample by sample.
      if (use.bytes >= use.samples) epoch.peers[use.bytes / use.samples] += use.samples;
      return;
    case Source::Kind::kStorage:
      break;
  }
  Count(use.bytes, epoch.storage);
  epoch.at_peers += use.planned != nullptr && use.planned->at_peer;
}

// Without a link in the model other nodes are not asked.
Source::Kind EpochPlanner::SourceOf(const Use& use) {
  if (use.planned == nullptr) return Source::Kind::kStorage;
  const PlannedUse& planned = *use.planned;
  // Where the order reads blocks nothing is fetched ahead: the first use brings it.
  const bool awaited = config_.order->reads_blocks() && awaited_.erase(planned.block) != 0;
  const bool in_tier = planned.tier != kNoTier && !awaited;
  if (!times_.has_value()) return in_tier ? Source::Kind::kTier : Source::Kind::kStorage;
  // As the engine chooses (SourceChoice): a tier and another node give samples, storage reads.
  SampleRead read{.bytes = static_cast<double>(use.bytes) / static_cast<double>(use.samples)};
  if (use.samples > 1) {
    read.storage_bytes =
        static_cast<double>(std::min(use.bytes, config_.engine_options().block_read_bytes_max));
  }
  if (in_tier) read.tier = planned.tier;
  if (planned.at_peer && config_.options.model->link.has_value()) read.peer = planned.peer_tier;
  return times_->Fastest(read);
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
