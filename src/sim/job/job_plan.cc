#include "sim/job/job_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/format/errors.h"
#include "engine/loop/engine_options.h"
#include "plan/block_map.h"

namespace headrace {
namespace {

constexpr std::uint64_t kUnitsMax = 0xffff'ffff;  // of a tier
// Of staging, for what an order keeps resident: the rest is for batches.
constexpr double kResidentShare = 0.75;

SampleTable CostsOf(const std::vector<double>& sizes) {
  auto costs = std::make_shared<std::vector<std::uint32_t>>();
  costs->reserve(sizes.size());
  const double largest = *std::ranges::max_element(sizes);
  const double scale = std::min(1.0, static_cast<double>(UINT32_MAX - 1) / largest);
  for (const double size : sizes) {
    costs->push_back(static_cast<std::uint32_t>(std::lround(size * scale)));
  }
  return costs;
}

}  // namespace

Result<JobPlan> JobPlan::Make(const SimulatedJob& job, const EngineJobOptions& options,
                              const JobDataset& data) {
  JobPlan plan(job, options, data);
  HEADRACE_RETURN_IF_ERROR(plan.Settle());
  return plan;
}

Status JobPlan::Settle() {
  if (options_.ranks == 0 || options_.batches_max == 0 || !(options_.reads_per_second > 0)) {
    return InvalidArgument(
        "simulating: got {} ranks a node, {} batches ahead and {} reads a second; all must be "
        "above 0",
        options_.ranks, options_.batches_max, options_.reads_per_second);
  }
  if (options_.reads_per_second < kUnlimited && !job_.cluster.reads_share) {
    return InvalidArgument("simulating: got {} reads a second where reads do not share storage",
                           options_.reads_per_second);
  }
  HEADRACE_ASSIGN_OR_RETURN(lane_policies_, LanePolicies().Get(options_.schedule));
  HEADRACE_ASSIGN_OR_RETURN(spec_, MakeSpec());
  HEADRACE_ASSIGN_OR_RETURN(const OrderFactory* const factory, Orders().Get(spec_.name));
  exchanges_ = job_.cluster.nodes > 1 && factory->exchanging_nodes(spec_.parameters) > 1;
  HEADRACE_ASSIGN_OR_RETURN(steps_per_epoch_, StepsPerEpoch(JobOf(0)));
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const ResolvedOrder> order, OrderOf(0));
  HEADRACE_ASSIGN_OR_RETURN(batches_max_, BatchesMax(*order));
  if (job_.cluster.tiers.empty() || exchanges_) return Status();
  HEADRACE_ASSIGN_OR_RETURN(placements_, Placements().Get(options_.placement));
  HEADRACE_ASSIGN_OR_RETURN(room_, MakeRoom(*order));
  return Status();
}

Result<OrderSpec> JobPlan::MakeSpec() const {
  OrderSpec spec{.name = options_.order, .parameters = options_.parameters};
  HEADRACE_ASSIGN_OR_RETURN(const OrderFactory* const factory, Orders().Get(spec.name));
  if (factory->takes_costs()) spec.costs = CostsOf(job_.sizes);
  if (factory->reads_blocks()) {
    const double bytes = static_cast<double>(kBlockBytes) / (data_.mean_bytes * data_.scale);
    spec.parameters.emplace("block_samples", static_cast<std::int64_t>(std::clamp(
                                                 bytes, 1.0, static_cast<double>(kNeighboursMax))));
  }
  const auto budget = spec.parameters.find(factory->budget_parameter());
  if (budget == spec.parameters.end()) return spec;
  if (auto* const bytes = std::get_if<std::int64_t>(&budget->second)) {
    *bytes = static_cast<std::int64_t>(static_cast<double>(*bytes) / data_.scale);
  }
  return spec;
}

OrderOptions JobPlan::JobOf(NodeNumber node) const {
  return {.sample_count = job_.sizes.size(),
          .batch_size = job_.batch_size,
          .world_size = job_.cluster.nodes * options_.ranks,
          .rank = node * options_.ranks,
          .ranks = options_.ranks,
          .seed = job_.seed,
          .drop_last = true,
          .epochs = job_.epochs};
}

Result<std::shared_ptr<const ResolvedOrder>> JobPlan::OrderOf(NodeNumber node) const {
  HEADRACE_ASSIGN_OR_RETURN(
      ResolvedOrder order,
      ResolvedOrder::Make(data_.index, JobOf(node), spec_, /*has_peers=*/exchanges_));
  HEADRACE_RETURN_IF_ERROR(
      order.Settle(data_.Scaled(kResidentShare * memory_bytes() / options_.ranks)));
  return std::make_shared<const ResolvedOrder>(std::move(order));
}

PlacementRequest JobPlan::RequestOf(const std::shared_ptr<const ResolvedOrder>& order,
                                    std::function<bool()> keep_going) const {
  PlacementRequest request = MakePlacementRequest(order, *room_, job_.epochs, Position());
  request.keep_going = std::move(keep_going);
  return request;
}

Result<std::uint32_t> JobPlan::BatchesMax(const ResolvedOrder& order) const {
  const double memory = memory_bytes() / data_.scale;
  const double resident = order.reads_blocks() ? static_cast<double>(order.resident_units()) *
                                                     static_cast<double>(order.unit_bytes())
                                               : 0;
  if (resident > memory) {
    return FailedPrecondition("order '{}' keeps {} resident, and {} {}", options_.order,
                              DecimalBytes(resident * data_.scale),
                              has_first_tier() ? "staging and the first tier have" : "staging has",
                              DecimalBytes(memory_bytes()));
  }
  const double batch = data_.mean_bytes * static_cast<double>(job_.batch_size) * options_.ranks;
  // One is in use. One ahead is allowed in any case.
  const double ahead = std::clamp((memory - resident) / std::max(batch, 1.0) - 1, 1.0,
                                  static_cast<double>(options_.batches_max));
  return static_cast<std::uint32_t>(ahead);
}

// Units are as small as numbers of them may be: nothing is lost to rounding.
Result<TierRoom> JobPlan::MakeRoom(const ResolvedOrder& order) const {
  std::uint64_t unit_bytes = 1;
  for (const Cluster::Tier& tier : job_.cluster.tiers) {
    while (data_.Scaled(tier.bytes) / unit_bytes >= kUnitsMax) unit_bytes *= 2;
  }
  std::uint64_t block_samples = 1;
  if (order.reads_blocks()) {
    HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const BlockMap> blocks,
                              order.CacheBlocks(data_.index, kUnitBytesMin));
    block_samples = blocks->block(0).count;
  }
  TierRoom room{.blocks = MakeBlocksInUnits(data_.index, block_samples, unit_bytes)};
  for (const Cluster::Tier& tier : job_.cluster.tiers) {
    room.capacity_units.push_back(data_.Scaled(tier.bytes) / unit_bytes);
  }
  return room;
}

// What an order that exchanges keeps resident takes the place of the first tier.
double JobPlan::memory_bytes() const {
  const Cluster& cluster = job_.cluster;
  return cluster.staging_bytes + (has_first_tier() ? cluster.tiers.front().bytes : 0);
}

Result<double> JobPlan::FirstReadSeconds(
    std::span<const std::shared_ptr<const ResolvedOrder>> orders) const {
  const std::uint32_t nodes = job_.cluster.nodes;
  double rate = 0;  // of all reads together
  for (std::uint32_t readers = 1; readers <= nodes; ++readers) {
    rate = std::max(rate, readers / job_.cluster.NodeFromStorage(readers));
  }
  if (!job_.cluster.reads_share) rate *= reads_in_flight();
  if (!orders.front()->reads_blocks()) {
    const double samples = static_cast<double>(job_.batch_size) * options_.ranks * nodes;
    return samples * data_.mean_bytes * data_.scale / rate;
  }
  std::vector<bool> needed(job_.sizes.size());
  for (const std::shared_ptr<const ResolvedOrder>& order : orders) {
    HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Order> planned, order->MakeOrder({}));
    const std::optional<Step> step = planned->Next();
    if (!step.has_value()) continue;
    for (const BlockRead& read : step->reads) {
      const auto kept = static_cast<std::uint32_t>(read.kept.size());
      const std::uint32_t count = kept == 0 ? read.count : kept;
      for (std::uint32_t i = 0; i < count; ++i) {
        needed[Raw(read.first) + (kept == 0 ? i : read.kept[i])] = true;
      }
    }
  }
  double bytes = 0;
  for (std::size_t sample = 0; sample < needed.size(); ++sample) {
    if (needed[sample]) bytes += job_.sizes[sample];
  }
  return bytes / rate;
}

double JobPlan::least_read_bytes() const {
  double best = 0;
  for (const Curve::Point& point : job_.cluster.storage.points()) {
    best = std::max(best, point.rate);
  }
  return best / options_.reads_per_second;
}

// Without a number: as a loader; or, as in the papers, what all threads of a node would read.
std::uint32_t JobPlan::reads_in_flight() const {
  if (options_.reads_in_flight != 0) return options_.reads_in_flight;
  if (job_.cluster.reads_share) return EngineOptions().reads_in_flight_max;
  std::uint32_t reads = job_.cluster.staging_threads;
  for (const Cluster::Tier& tier : job_.cluster.tiers) reads += tier.threads;
  return reads;
}

}  // namespace headrace
