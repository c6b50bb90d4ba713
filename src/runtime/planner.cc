#include "runtime/planner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/cell_pool.h"
#include "base/units.h"
#include "index/index.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

// Blocks that a pool has of use: with 27 a sample of the global batch, three quarters of them
// joined, the variance inflation of a batch stays below 1.03 (docs/quality.md).
constexpr std::uint64_t kUsefulBlocksPerSample = 27;
// And it has this share of the dataset at least, for windows far longer than a batch.
constexpr std::uint64_t kUsefulShare = 10;

constexpr char kBlockSamples[] = "block_samples";
constexpr std::int64_t kBlockSamplesMax = 0xffff'ffff;

}  // namespace

Result<Planner> Planner::Make(const std::shared_ptr<const Index>& index, const OrderOptions& job,
                              const OrderSpec& spec) {
  const OrderFactory* factory = FindOrder(spec.name);
  if (factory == nullptr) {
    std::string names;
    for (const OrderFactory* each : AllOrders()) {
      names.append(names.empty() ? "'" : ", '").append(each->name()).append("'");
    }
    return Status(StatusCode::kInvalidArgument,
                  "order: got '" + spec.name + "', must be one of " + names);
  }
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
  Planner planner(factory, std::move(request), block_samples);
  // Before anything that costs: what is wrong with the job or the parameters.
  HEADRACE_RETURN_IF_ERROR(factory->Resolve(planner.request_).status());
  return planner;
}

bool Planner::BudgetIsGiven() const {
  const std::string_view name = factory_->budget_parameter();
  return name.empty() || request_.parameters.contains(name);
}

OrderParameters Planner::parameters() const {
  OrderParameters parameters = request_.parameters;
  if (reads_blocks()) parameters.insert_or_assign(kBlockSamples, block_samples_);
  return parameters;
}

Result<std::shared_ptr<const BlockMap>> Planner::CacheBlocks(
    const std::shared_ptr<const Index>& index, std::uint64_t unit_bytes_min) const {
  if (!reads_blocks()) return MakeIndexBlocks(index, /*block_samples=*/1, unit_bytes_min);
  if (request_.blocks->unit_bytes() >= unit_bytes_min) return request_.blocks;
  return MakeIndexBlocks(index, static_cast<std::uint64_t>(block_samples_), unit_bytes_min);
}

Result<std::unique_ptr<UseStream>> Planner::MakeUses(std::shared_ptr<const BlockMap> blocks,
                                                     Position start) const {
  const NodeSplit split{.world_size = request_.job.world_size,
                        .ranks_per_node = request_.job.ranks};
  return MakeOrderUses(*factory_, request_, std::move(blocks), split, start);
}

std::uint64_t Planner::mean_block_bytes() const {
  return request_.blocks->total_units() / request_.blocks->block_count() * unit_bytes();
}

Status Planner::AddNeeds(BudgetNeeds& needs) const {
  if (!reads_blocks()) return Status();
  const BlockMap& blocks = *request_.blocks;
  needs.pinned_bytes = blocks.total_units() * blocks.unit_bytes();
  needs.resident_fixed = BudgetIsGiven();
  std::uint64_t units = 0;
  if (needs.resident_fixed) {
    HEADRACE_ASSIGN_OR_RETURN(units, factory_->ResidentUnits(request_));
  } else {
    const std::uint64_t mean_block = blocks.total_units() / blocks.block_count() + 1;
    const OrderOptions& job = request_.job;
    units = std::max(blocks.total_units() / kUsefulShare * job.ranks / job.world_size,
                     kUsefulBlocksPerSample * job.batch_size * job.ranks * mean_block);
    // What is in the way of the next epoch's blocks counts, too.
    units = std::min(units, blocks.total_units() + blocks.largest_block());
    units = std::max(units, 2 * blocks.largest_block());
  }
  needs.resident_bytes = CellPool::ChargedBytes(units, blocks.unit_bytes());
  return Status();
}

Status Planner::Settle(const Budget& budget) {
  if (reads_blocks() && !BudgetIsGiven()) {
    HEADRACE_RETURN_IF_ERROR(SettleBudget(budget).WithContext(
        FormatBytes(budget.resident_bytes) +
        " of memory= are left for what the order keeps resident; raise it, or use order 'exact'"));
  }
  HEADRACE_ASSIGN_OR_RETURN(request_.parameters, factory_->Resolve(request_));
  HEADRACE_ASSIGN_OR_RETURN(resident_units_, factory_->ResidentUnits(request_));
  return Status();
}

// Gives the order as much as the job's ranks have memory for here, and as much for the others.
// Where these and others share pools, each side keeps those whole: the job has less, then.
Status Planner::SettleBudget(const Budget& budget) {
  const std::string name(factory_->budget_parameter());
  const std::uint64_t here = budget.resident_bytes / CellPool::ChargedBytes(1, unit_bytes());
  Uint128 units = Uint128{here} * request_.job.world_size / request_.job.ranks;
  for (;;) {
    OrderRequest request = request_;
    request.parameters.insert_or_assign(name, static_cast<std::int64_t>(units * unit_bytes()));
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t resident, factory_->ResidentUnits(request));
    if (resident <= here) {
      request_ = std::move(request);
      return Status();
    }
    units = units * here / resident;  // Less than before, for `here` is.
  }
}

Result<std::optional<ExpectedInflation>> Planner::Inflation(const Index& index) const {
  if (!reads_blocks()) return std::optional<ExpectedInflation>();
  HEADRACE_ASSIGN_OR_RETURN(const SampleTable labels, InlineLabels(index));
  return ExpectedLabelInflation(factory_->name(), request_, labels);
}

}  // namespace headrace
