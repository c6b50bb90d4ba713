#include "loader/config/resolved_order.h"

#include <string>
#include <utility>

#include "base/cell_pool.h"
#include "base/units.h"
#include "index/index.h"

namespace headrace {
namespace {

constexpr char kBlockSamples[] = "block_samples";
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

}  // namespace

Result<ResolvedOrder> ResolvedOrder::Make(const std::shared_ptr<const Index>& index,
                                          const OrderOptions& job, const OrderSpec& spec) {
  HEADRACE_ASSIGN_OR_RETURN(const OrderFactory* const factory, Orders().Get(spec.name));
  OrderRequest request{.job = job,
                       .parameters = spec.parameters,
                       .blocks = nullptr,
                       .homes = spec.homes,
                       .costs = spec.costs};
  std::int64_t block_samples = 0;
  if (factory->reads_blocks()) {
    OrderParameters own;
    if (auto given = request.parameters.extract(kBlockSamples)) own.insert(std::move(given));
    ParameterReader reader(spec.name, own);
    block_samples = reader.Integer(kBlockSamples, 0, 0, kBlockSamplesMax);
    HEADRACE_RETURN_IF_ERROR(reader.Finish().status());
    HEADRACE_ASSIGN_OR_RETURN(request.blocks,
                              MakeIndexBlocks(index, static_cast<std::uint64_t>(block_samples)));
  }
  ResolvedOrder order(factory, std::move(request), block_samples);
  // Before anything that costs: what is wrong with the job or the parameters.
  HEADRACE_RETURN_IF_ERROR(factory->Resolve(order.request_).status());
  return order;
}

OrderParameters ResolvedOrder::parameters() const {
  OrderParameters parameters = request_.parameters;
  if (reads_blocks()) parameters.insert_or_assign(kBlockSamples, block_samples_);
  return parameters;
}

Result<std::shared_ptr<const BlockMap>> ResolvedOrder::CacheBlocks(
    const std::shared_ptr<const Index>& index, std::uint64_t unit_bytes_min) const {
  if (!reads_blocks()) return MakeIndexBlocks(index, /*block_samples=*/1, unit_bytes_min);
  if (request_.blocks->unit_bytes() >= unit_bytes_min) return request_.blocks;
  return MakeIndexBlocks(index, static_cast<std::uint64_t>(block_samples_), unit_bytes_min);
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
    origins_.emplace(kBlockSamples, OriginName(block_samples_ == 0 ? ParameterOrigin::kDefault
                                                                   : ParameterOrigin::kGiven));
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
  HEADRACE_ASSIGN_OR_RETURN(const SampleTable labels, InlineLabels(index));
  return ExpectedLabelInflation(*factory_, request_, labels);
}

}  // namespace headrace
