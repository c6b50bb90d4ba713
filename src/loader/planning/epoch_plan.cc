#include "loader/planning/epoch_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/batch/row_rooms.h"
#include "fetch/coalesce.h"
#include "headrace/index.h"
#include "loader/config/resolved_order.h"
#include "plan/placement/readers/storage_readers.h"

namespace headrace {
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
  stored_fields_ = std::ranges::count_if(
      config_.schema, [](const BatchField& field) { return !field.is_inline(); });
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
    return AddUse({.planned = placed.has_value() ? &placed->uses.at(use++) : nullptr,
                   .bytes = bytes,
                   .samples = samples},
                  epoch);
  };
  for (const BlockRead& read : step.reads) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t kept : read.kept) {
      bytes += BytesOf(SampleId{Raw(read.first) + kept}, 1);
    }
    const bool stored = read.kept.empty() ? add(BytesOf(read.first, read.count), read.count)
                                          : add(bytes, read.kept.size());
    if (stored) CountBlock(read, epoch.storage);
  }
  std::map<std::uint32_t, std::vector<Piece>> rows;  // by rank
  for (const Delivery& delivery : step.deliveries) {
    const std::uint64_t bytes = BytesOf(delivery.sample, 1);
    ++epoch.samples;
    epoch.sample_bytes += bytes;
    if (delivery.block_read != kNoBlockRead || !add(bytes, 1)) continue;
    std::vector<Piece>& pieces = rows[delivery.rank];
    AddPieces(delivery.sample, pieces);
    if (stored_fields_ > 1) CountRows(pieces, epoch.storage);  // Row by row.
  }
  for (auto& [rank, pieces] : rows) CountRows(pieces, epoch.storage);
  if (placed.has_value()) AddOps(*placed, epoch);
}

bool EpochPlanner::AddUse(const Use& use, PlannedEpoch& epoch) {
  switch (SourceOf(use)) {
    case Source::Kind::kTier:
      Count(EntryBytes(use.planned->block, use.bytes), epoch.tiers[use.planned->tier].reads);
      return false;
    case Source::Kind::kPeer:  // Sample by sample.
      if (use.bytes >= use.samples) epoch.peers[use.bytes / use.samples] += use.samples;
      return false;
    case Source::Kind::kStorage:
      break;
  }
  epoch.at_peers += use.planned != nullptr && use.planned->at_peer;
  return true;
}

void EpochPlanner::AddPieces(SampleId sample, std::vector<Piece>& pieces) const {
  for (std::size_t field = 0; field < config_.schema.size(); ++field) {
    if (config_.schema[field].is_inline()) continue;
    const auto extent = index_->extent(config_.schema[field].index_field, sample);
    if (extent.ok()) pieces.push_back({field, sample, extent.value()});  // Else nothing is read.
  }
}

// As RowReader::MakeReads().
void EpochPlanner::CountRows(std::vector<Piece>& pieces, ReadCounts& counts) const {
  const auto extent_of = [](const Piece& piece) -> const Extent& { return piece.extent; };
  std::sort(pieces.begin(), pieces.end(),
            [&](const Piece& a, const Piece& b) { return LiesBefore(extent_of(a), extent_of(b)); });
  Coalesce(
      std::span(pieces), engine_.row_limits(), extent_of,
      [this](const Piece& piece) {
        return ReadInPlace(config_.schema[piece.field], piece.extent.range.size);
      },
      [](const Piece& a, const Piece& b) { return a.sample == b.sample; },
      [&counts](const Extent& extent, std::span<const Piece>) {
        if (extent.range.size != 0) ++counts[extent.range.size];
      });
  pieces.clear();
}

// As BlockParts::MakeAll().
void EpochPlanner::CountBlock(const BlockRead& read, ReadCounts& counts) const {
  std::vector<Piece> pieces;
  const std::size_t kept = read.whole || read.kept.empty() ? read.count : read.kept.size();
  for (std::uint32_t place = 0; place < kept; ++place) {
    AddPieces(read.whole ? SampleId{Raw(read.first) + place} : KeptSampleId(read, place), pieces);
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return LiesBefore(a.extent, b.extent); });
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max() / 2;
  Coalesce(
      std::span(pieces),
      read.whole ? CoalesceLimits{.gap_bytes = kAny, .bytes_max = kAny} : engine_.block_limits(),
      [](const Piece& piece) -> const Extent& { return piece.extent; },
      [](const Piece&) { return false; },
      [](const Piece& a, const Piece& b) { return a.sample == b.sample; },
      [&counts](const Extent& extent, std::span<const Piece>) {
        if (extent.range.size != 0) ++counts[extent.range.size];
      });
}

// As TierFiller::Make(): a read a field. Blocks are samples where something is fetched ahead.
void EpochPlanner::CountFill(SampleId sample, ReadCounts& counts) const {
  std::vector<Piece> pieces;
  AddPieces(sample, pieces);
  for (const Piece& piece : pieces) {
    if (piece.extent.range.size != 0) ++counts[piece.extent.range.size];
  }
}

// In pieces no larger than the engine reads. Of nothing there is none: a model knows no such read.
void EpochPlanner::Count(std::uint64_t bytes, ReadCounts& counts) const {
  const std::uint64_t piece = std::max<std::uint64_t>(engine_.block_read_bytes_max, 1);
  if (bytes / piece != 0) counts[piece] += bytes / piece;
  if (bytes % piece != 0) ++counts[bytes % piece];
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
    read.storage_bytes = static_cast<double>(std::min(use.bytes, engine_.block_read_bytes_max));
  }
  if (in_tier) read.tier = planned.tier;
  if (planned.at_peer && config_.options.model->link.has_value()) read.peer = planned.peer_tier;
  return times_->Fastest(read);
}

void EpochPlanner::AddOps(const PlacedStep& placed, PlannedEpoch& epoch) {
  for (const CacheOp& op : placed.ops) {
    if (op.to == kNoTier) continue;
    const BlockMap::Block block = room_.blocks->block(op.block);
    const std::uint64_t bytes = EntryBytes(op.block, BytesOf(block.first, block.count));
    Count(bytes, epoch.tiers[op.to].writes);
    if (op.from != kNoTier) {
      Count(bytes, epoch.tiers[op.from].reads);
    } else if (op.ahead && config_.order->reads_blocks()) {
      awaited_.insert(op.block);
    } else if (op.ahead) {  // No use of the step brings it.
      CountFill(block.first, epoch.storage);
    }
  }
}

// Of a block in a tier; in whole units, if that holds images decoded. `stored_bytes`: of its
// samples.
std::uint64_t EpochPlanner::EntryBytes(std::uint32_t block, std::uint64_t stored_bytes) const {
  if (config_.options.tiers.decoded_images == nullptr) return stored_bytes;
  std::uint32_t units = 0;  // Blocks are samples.
  room_.blocks->Charges(SampleId{block}, {&units, 1});
  return units * room_.blocks->unit_bytes();
}

std::uint64_t EpochPlanner::BytesOf(SampleId first, std::uint32_t count) const {
  std::vector<std::uint64_t> bytes(count);
  index_->SampleBytes(first, bytes);
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

}  // namespace headrace
