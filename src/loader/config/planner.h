#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "loader/config/budget.h"
#include "loader/config/loader_options.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/placement/uses.h"
#include "plan/quality/labels.h"

namespace headrace {

class Index;

// The order that a loader runs, with everything it is made from, and what it needs of memory.
class Planner {
 public:
  // Looks `spec` up and at the dataset. Memory is not known yet: call Settle() before MakeOrder().
  //
  // Errors: InvalidArgument  no such order; those of MakeIndexBlocks and OrderFactory::Resolve
  static Result<Planner> Make(const std::shared_ptr<const Index>& index, const OrderOptions& job,
                              const OrderSpec& spec);

  // Fixes the parameters that were left out. `rank_bytes`: the memory for residents that each rank
  // has alone in its process, so that the order does not depend on how ranks share processes. The
  // order may need more than that.
  //
  // Errors: those of OrderFactory::Resolve
  Status Settle(std::uint64_t rank_bytes);

  // Writes the bytes that the order keeps resident, and those it could pin, into `needs`. After
  // Settle().
  void AddNeeds(BudgetNeeds& needs) const;

  [[nodiscard]] Result<std::unique_ptr<Order>> MakeOrder(Position start) const {
    return factory_->Make(request_, start);
  }
  [[nodiscard]] const OrderOptions& job() const { return request_.job; }
  // What tiers keep as one: the order's blocks, or, where it reads none, single samples; in units
  // of `unit_bytes_min` at least.
  //
  // Errors: those of MakeIndexBlocks
  [[nodiscard]] Result<std::shared_ptr<const BlockMap>> CacheBlocks(
      const std::shared_ptr<const Index>& index, std::uint64_t unit_bytes_min) const;
  // The uses of `blocks`, out of CacheBlocks(), that every node makes: as many ranks, side by side,
  // as the job has here. After Settle().
  //
  // Errors: those of MakeOrderUses
  [[nodiscard]] Result<std::unique_ptr<UseStream>> MakeUses(std::shared_ptr<const BlockMap> blocks,
                                                            Position start) const;
  [[nodiscard]] OrderParameters parameters() const;
  // Where each of parameters() comes from: "given", "default" or "default, limited by memory".
  // After Settle().
  [[nodiscard]] const OrderParameters& origins() const { return origins_; }
  [[nodiscard]] bool reads_blocks() const { return request_.blocks != nullptr; }
  [[nodiscard]] bool follows_lists() const { return factory_->follows_lists(); }
  [[nodiscard]] std::uint64_t unit_bytes() const { return request_.blocks->unit_bytes(); }
  // Most units resident. After Settle().
  [[nodiscard]] std::uint64_t resident_units() const { return resident_units_; }
  // What the order is expected to do to the labels of a batch. After Settle(). Nothing: no closed
  // form is known, or nothing is to be feared.
  //
  // Errors: those of InlineLabels
  [[nodiscard]] Result<std::optional<ExpectedInflation>> Inflation(const Index& index) const;

  // Bytes of a block of average size.
  [[nodiscard]] std::uint64_t mean_block_bytes() const;

 private:
  Planner(const OrderFactory* factory, OrderRequest request, std::int64_t block_samples)
      : factory_(factory), request_(std::move(request)), block_samples_(block_samples) {}

  const OrderFactory* factory_;
  OrderRequest request_;
  std::int64_t block_samples_;  // as given
  std::uint64_t resident_units_ = 0;
  OrderParameters origins_;
};

}  // namespace headrace
