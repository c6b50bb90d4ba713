#include "loader/planning/rank_batches.h"

#include "base/format/errors.h"
#include "loader/config/loader_config.h"
#include "loader/config/resolved_order.h"

namespace headrace {

Result<std::unique_ptr<RankBatches>> RankBatches::Make(const std::shared_ptr<const Index>& index,
                                                       LoaderOptions options, Lane lane,
                                                       Position start) {
  const std::uint32_t rank = options.job.rank;
  if (lane.place >= lane.count || lane.place > rank) {
    return InvalidArgument(
        "planning the batches of rank {}: got lane {} of {}, must be below {} and at most the rank",
        rank, lane.place, lane.count, lane.count);
  }
  options.job.rank = rank - lane.place;
  options.job.ranks = lane.count;
  HEADRACE_ASSIGN_OR_RETURN(const LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> order, config.order->MakeOrder(start));
  return std::unique_ptr<RankBatches>(new RankBatches(std::move(order), rank));
}

std::optional<RankBatches::Batch> RankBatches::Next() {
  const std::optional<Step> step = order_->Next();
  if (!step.has_value()) return std::nullopt;
  Batch batch{
      .epoch = step->epoch, .step = step->step, .ends_epoch = step->ends_epoch, .samples = {}};
  for (const Delivery& each : step->deliveries) {  // Sorted by rank, then slot.
    if (each.rank == rank_) batch.samples.push_back(Raw(each.sample));
  }
  return batch;
}

}  // namespace headrace
