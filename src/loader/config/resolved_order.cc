#include "loader/config/resolved_order.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/cell_pool.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "headrace/index.h"
#include "plan/home_tables.h"
#include "plan/mixture/mixture.h"

namespace headrace {
namespace {

constexpr char kBlockSamples[] = "block_samples";
constexpr const char* kFromProfile = "default, from the profile";
constexpr std::int64_t kBlockSamplesMax = 0xffff'ffff;

const char* OriginName(ParameterOrigin origin) {
  switch (origin) {
    case ParameterOrigin::kGiven:
      return "given";
    case ParameterOrigin::kDefault:
      return "default";
    case ParameterOrigin::kMemory:
      break;
  }
  return "default, limited by memory";
}

// Null: the order has no mixture.
Result<std::shared_ptr<const Mixture>> MixtureOf(const Index& index, const OrderSpec& spec) {
  if (spec.mixture == nullptr) return std::shared_ptr<const Mixture>();
  HEADRACE_ASSIGN_OR_RETURN(const OrderFactory* const factory, Orders().Get(spec.name));
  if (!factory->takes_mixtures()) {
    return InvalidArgument("order '{}' of a mixture: it takes none; use order 'exact'", spec.name);
  }
  if (spec.left_out_count() != 0) {
    return InvalidArgument(
        "mixture: {} are left out (skip=), which is not supported in mixtures; write the sources "
        "without these samples (headrace pack)",
        Counted(spec.left_out_count(), "sample"));
  }
  HEADRACE_ASSIGN_OR_RETURN(Mixture mixture, Mixture::Make(*spec.mixture));
  if (mixture.sample_count() != index.sample_count()) {
    return InvalidArgument("mixture: its sources have {}, the dataset has {}",
                           Counted(mixture.sample_count(), "sample"), index.sample_count());
  }
  return std::shared_ptr<const Mixture>(std::make_shared<const Mixture>(std::move(mixture)));
}

}  // namespace

Result<std::uint64_t> EpochSamples(const Index& index, const OrderSpec& spec) {
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const Mixture> mixture, MixtureOf(index, spec));
  if (mixture != nullptr) return mixture->epoch_samples();
  return index.sample_count() - spec.left_out_count();
}

Result<ResolvedOrder> ResolvedOrder::Make(const std::shared_ptr<const Index>& index,
                                          const OrderOptions& job, const OrderSpec& spec,
                                          bool has_peers, const MachineModel* model) {
  HEADRACE_ASSIGN_OR_RETURN(const OrderFactory* const factory, Orders().Get(spec.name));
  std::shared_ptr<const LeftOut> left_out;
  if (spec.left_out_count() != 0) {
    HEADRACE_ASSIGN_OR_RETURN(left_out, LeftOut::Make(spec.left_out, index->sample_count()));
  }
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Mixture> mixture, MixtureOf(*index, spec));
  const auto rest = [&](const SampleTable& table) {
    return left_out == nullptr ? table : left_out->Without(table);
  };
  OrderRequest request{.job = job,
                       .parameters = spec.parameters,
                       .blocks = nullptr,
                       .homes = rest(spec.homes),
                       .costs = rest(spec.costs),
                       .mixture = std::move(mixture)};
  ResolvedOrder order(factory, std::move(request), std::move(left_out));
  HEADRACE_RETURN_IF_ERROR(order.SetBlocks(index, has_peers, model));
  HEADRACE_RETURN_IF_ERROR(order.SetHomes(*index, has_peers));
  // Before anything that costs: what is wrong with the job or the parameters.
  HEADRACE_RETURN_IF_ERROR(factory->Resolve(order.request_).status());
  return order;
}

// Of an order that reads blocks.
Status ResolvedOrder::SetBlocks(const std::shared_ptr<const Index>& index, bool has_peers,
                                const MachineModel* model) {
  if (!factory_->reads_blocks()) return Status();
  const bool compares = has_peers && factory_->exchanging_nodes(request_.parameters) > 1;
  const bool is_one_plan = compares || request_.job.ranks == request_.job.world_size;
  HEADRACE_ASSIGN_OR_RETURN(
      block_size_, ReadBlockSize(*factory_, request_, *index, is_one_plan ? model : nullptr));
  HEADRACE_ASSIGN_OR_RETURN(
      request_.blocks,
      BlocksOf(index, static_cast<std::uint64_t>(block_size_.samples), kUnitBytesMin));
  return Status();
}

Result<std::shared_ptr<const BlockMap>> ResolvedOrder::BlocksOf(
    const std::shared_ptr<const Index>& index, std::uint64_t block_samples,
    std::uint64_t unit_bytes_min) const {
  HEADRACE_ASSIGN_OR_RETURN(
      std::shared_ptr<const BlockMap> blocks,
      MakeIndexBlocks(index, block_samples, unit_bytes_min, block_size_.sample_bytes));
  return left_out_ == nullptr ? blocks : BlocksWithout(std::move(blocks), left_out_);
}

Result<std::unique_ptr<Order>> ResolvedOrder::MakeOrder(Position start) const {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> order, factory_->Make(request_, start));
  return left_out_ == nullptr ? std::move(order) : OrderWithout(std::move(order), left_out_);
}

// Takes the parameter out of the request.
Result<ResolvedOrder::BlockSize> ResolvedOrder::ReadBlockSize(const OrderFactory& factory,
                                                              OrderRequest& request,
                                                              const Index& index,
                                                              const MachineModel* model) {
  OrderParameters own;
  if (auto given = request.parameters.extract(kBlockSamples)) own.insert(std::move(given));
  ParameterReader reader(factory.name(), own);
  BlockSize size{.samples = reader.Integer(kBlockSamples, 0, 0, kBlockSamplesMax)};
  HEADRACE_RETURN_IF_ERROR(reader.Finish().status());
  // A single measured size of reads says nothing of others.
  if (!own.empty() || model == nullptr || model->storage.rate.sizes().size() < 2) return size;
  std::optional<BlockFacts> facts = FactsForBlocks(index);
  if (!facts.has_value()) return size;
  facts->nodes = factory.exchanging_nodes(request.parameters);
  facts->read_rate = [model](double bytes) {
    return model->storage.rate.Rate(bytes, model->readers);
  };
  size.sample_bytes = facts->sample_bytes;
  if (const auto samples = factory.BlockSamples(*facts)) {
    size.samples = static_cast<std::int64_t>(*samples);
    size.from_profile = true;
  }
  return size;
}

// Of an order whose nodes exchange samples.
Status ResolvedOrder::SetHomes(const Index& index, bool has_peers) {
  const std::uint32_t nodes = factory_->exchanging_nodes(request_.parameters);
  if (nodes == 1) return Status();
  if (request_.homes == nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(request_.homes, HomeTable(index));
    if (left_out_ != nullptr) request_.homes = left_out_->Without(request_.homes);
    const std::uint32_t homes =
        request_.homes == nullptr ? 1 : 1 + *std::ranges::max_element(*request_.homes);
    if (homes > 1 && homes != nodes) {
      return InvalidArgument(
          "order '{}' with {} nodes: the dataset has {} homes (folders home-0, home-1, ...), which "
          "must be as many; pack it with --shards-over {}, or run on {} nodes and give the "
          "order {}",
          factory_->name(), nodes, homes, nodes, homes, homes);
    }
  }
  OrderOptions& job = request_.job;
  if (!has_peers) return Status();
  if (std::uint64_t{nodes} * job.ranks != job.world_size || job.rank % job.ranks != 0) {
    return InvalidArgument(
        "order '{}' on {} nodes: rank {} of {} is the first of {} on its node; each node must have "
        "as many ranks, and the job as many nodes",
        factory_->name(), nodes, job.rank, job.world_size, job.ranks);
  }
  job.exchange = true;
  return Status();
}

OrderParameters ResolvedOrder::parameters() const {
  OrderParameters parameters = request_.parameters;
  if (reads_blocks()) parameters.insert_or_assign(kBlockSamples, block_size_.samples);
  return parameters;
}

Result<std::shared_ptr<const BlockMap>> ResolvedOrder::CacheBlocks(
    const std::shared_ptr<const Index>& index, std::uint64_t unit_bytes_min) const {
  if (!reads_blocks()) return BlocksOf(index, /*block_samples=*/1, unit_bytes_min);
  if (request_.blocks->unit_bytes() >= unit_bytes_min) return request_.blocks;
  return BlocksOf(index, static_cast<std::uint64_t>(block_size_.samples), unit_bytes_min);
}

Result<std::unique_ptr<UseStream>> ResolvedOrder::MakeUses(std::shared_ptr<const BlockMap> blocks,
                                                           Position start) const {
  const NodeSplit split{.world_size = request_.job.world_size,
                        .ranks_per_node = request_.job.ranks};
  return MakeOrderUses(*factory_, request_, std::move(blocks), split, start);
}

std::uint64_t ResolvedOrder::mean_block_bytes() const {
  return request_.blocks->total_units() / request_.blocks->block_count() * unit_bytes();
}

Status ResolvedOrder::Settle(std::uint64_t rank_bytes) {
  if (reads_blocks()) {
    request_.rank_units = rank_bytes / CellPool::ChargedBytes(1, unit_bytes());
    const bool is_given = block_size_.samples != 0;
    origins_.emplace(kBlockSamples, block_size_.from_profile
                                        ? kFromProfile
                                        : OriginName(is_given ? ParameterOrigin::kGiven
                                                              : ParameterOrigin::kDefault));
  }
  HEADRACE_ASSIGN_OR_RETURN(const auto origins, ParameterOrigins(*factory_, request_));
  for (const auto& [name, origin] : origins) origins_.emplace(name, OriginName(origin));
  HEADRACE_ASSIGN_OR_RETURN(request_.parameters, factory_->Resolve(request_));
  HEADRACE_ASSIGN_OR_RETURN(resident_units_, factory_->ResidentUnits(request_));
  return Status();
}

void ResolvedOrder::AddNeeds(BudgetNeeds& needs) const {
  if (!reads_blocks()) return;
  needs.pinned_bytes = request_.blocks->total_units() * unit_bytes();
  needs.resident_bytes = CellPool::ChargedBytes(resident_units_, unit_bytes());
}

Result<std::optional<ExpectedInflation>> ResolvedOrder::Inflation(const Index& index) const {
  if (!reads_blocks()) return std::optional<ExpectedInflation>();
  HEADRACE_ASSIGN_OR_RETURN(SampleTable labels, InlineLabels(index));
  if (left_out_ != nullptr) labels = left_out_->Without(labels);
  return ExpectedLabelInflation(*factory_, request_, labels);
}

}  // namespace headrace
