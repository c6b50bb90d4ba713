#include "loader/session/row_sources.h"

#include <algorithm>
#include <utility>

#include "base/format/errors.h"
#include "loader/config/resolved_order.h"
#include "loader/session/session_tiers.h"
#include "store/decoded/coded_catalog.h"

namespace headrace {

RowSources::RowSources(std::shared_ptr<const Index> index, std::span<const BatchField> schema,
                       std::shared_ptr<const ResolvedOrder> order, const SessionTiers* tiers)
    : index_(std::move(index)), schema_(schema), order_(std::move(order)), tiers_(tiers) {}

void RowSources::OnTaken(std::uint32_t lane, const Batch& batch) {
  if (tiers_ == nullptr) return;
  MutexLock lock(mutex_);
  taken_.push_back({{.epoch = batch.epoch, .step = batch.step}, lane, batch.sources});
  if (taken_.size() > kStepsRemembered) taken_.pop_front();
}

std::vector<TierNumber> RowSources::ActualOf(Position position, std::uint32_t lane) const {
  MutexLock lock(mutex_);
  for (auto step = taken_.rbegin(); step != taken_.rend(); ++step) {
    if (step->position == position && step->lane == lane) return step->of_rows;
  }
  return {};
}

std::string RowSources::SourceName(TierNumber tier) const {
  if (tier == kFromNode) return "another node";
  return tier == kNoTier ? "storage" : tiers_->tiers()[tier]->name();
}

std::string RowSources::SourceName(const PlannedUse& use) const {
  return use.tier == kNoTier && use.at_peer ? "node " + std::to_string(use.peer)
                                            : SourceName(use.tier);
}

Result<std::vector<PlannedRow>> RowSources::OfStep(Position position, std::uint32_t lane) const {
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Order> order, order_->MakeOrder(position));
  const std::optional<Step> step = order->Next();
  if (!step.has_value()) {
    return OutOfRange("epoch {} step {}: the plan ends before it", position.epoch, position.step);
  }
  const std::uint32_t rank = order_->job().rank + lane;
  const auto is_rank = [rank](const Delivery& delivery) { return delivery.rank == rank; };
  const auto begin = std::find_if(step->deliveries.begin(), step->deliveries.end(), is_rank);
  const auto end = std::find_if_not(begin, step->deliveries.end(), is_rank);
  std::vector<TierNumber> actual;
  std::optional<std::vector<PlannedUse>> planned;
  if (tiers_ != nullptr && !order_->reads_blocks()) {
    actual = ActualOf(position, lane);
    HEADRACE_ASSIGN_OR_RETURN(planned, tiers_->Planned(position));
  }
  std::span<const PlannedUse> uses;  // of the lane's deliveries, out of the node's
  if (planned.has_value()) {
    uses = std::span(*planned).subspan(static_cast<std::size_t>(begin - step->deliveries.begin()));
  }
  return Describe(std::span(begin, end), {uses, actual, step->reads});
}

Result<std::vector<PlannedRow>> RowSources::OfSamples(std::span<const SampleId> samples) const {
  std::vector<Delivery> deliveries;
  deliveries.reserve(samples.size());
  for (const SampleId sample : samples) {
    deliveries.push_back({.sample = sample, .slot = static_cast<std::uint32_t>(deliveries.size())});
  }
  return Describe(deliveries, {});
}

// Of a step that begins a stream: all that is resident is read again, in that step.
std::string RowSources::SourceName(const Delivery& delivery, std::span<const BlockRead> reads) {
  const auto read = std::ranges::find(reads, delivery.block_read, &BlockRead::number);
  const bool is_parcel = read != reads.end() && read->home != kNoNode;
  return is_parcel ? "node " + std::to_string(read->home) : "block";
}

Result<std::vector<PlannedRow>> RowSources::Describe(std::span<const Delivery> deliveries,
                                                     const Known& known) const {
  std::vector<PlannedRow> rows;
  for (std::size_t i = 0; i < deliveries.size(); ++i) {
    const Delivery& delivery = deliveries[i];
    for (const BatchField& field : schema_) {
      PlannedRow row{.slot = delivery.slot, .sample = delivery.sample, .field = field.name};
      if (field.is_inline()) {
        row.source = "index";
      } else {
        HEADRACE_ASSIGN_OR_RETURN(const Extent extent,
                                  index_->extent(field.index_field, delivery.sample));
        HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo object, index_->object(extent.object));
        row.source = delivery.block_read != kNoBlockRead
                         ? SourceName(delivery, known.reads)
                         : SourceName(i < known.planned.size() ? known.planned[i] : PlannedUse());
        if (i < known.actual.size()) row.actual = SourceName(known.actual[i]);
        row.object = FilePath(index_->root(), object.name);
        row.range = extent.range;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace headrace
