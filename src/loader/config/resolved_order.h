#pragma once

#include <cstdint>
#include <memory>

#include "headrace/loader_options.h"
#include "headrace/machine_model.h"
#include "headrace/status.h"
#include "loader/config/budget.h"
#include "plan/block_map.h"
#include "plan/left_out.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/placement/uses.h"
#include "plan/quality/labels.h"

namespace headrace {

class Index;

// The places of an epoch: samples that are not left out, or those of a mixture's epoch.
//
// Errors: InvalidArgument  another number of samples than the mixture's sources have; samples of a
//                          mixture are left out; an order that takes no mixtures
//         those of Mixture::Make
Result<std::uint64_t> EpochSamples(const Index& index, const OrderSpec& spec);

// The order that a loader runs: its inputs, and the memory that it needs.
class ResolvedOrder {
 public:
  // Finds the order and inspects the dataset. The memory is not known yet: call Settle() before
  // MakeOrder(). `has_peers`: the nodes of the job can send each other samples; then job().exchange
  // says whether the order has them do so. `model`: of the machine, or null. Orders whose chunk
  // size depends on measurements (OrderFactory::BlockSamples) use it only if all ranks of the job
  // are in this process, or if their nodes exchange samples and so compare parameters before a run:
  // otherwise ranks with other measurements would make other plans, unnoticed.
  //
  // Errors: InvalidArgument  unknown order; another number of nodes than the order's homes, or than
  //                          those of the dataset; those of MakeIndexBlocks, HomeTable,
  //                          LeftOut::Make, EpochSamples and OrderFactory::Resolve
  static Result<ResolvedOrder> Make(const std::shared_ptr<const Index>& index,
                                    const OrderOptions& job, const OrderSpec& spec,
                                    bool has_peers = false, const MachineModel* model = nullptr);

  // Sets the parameters that the user left out. `rank_bytes`: the memory for residents that a rank
  // has if it is alone in its process; so the order does not depend on how ranks share processes.
  // The order may need more than that.
  //
  // Errors: those of OrderFactory::Resolve
  Status Settle(std::uint64_t rank_bytes);

  // Sets in `needs` the bytes that the order keeps resident and the bytes of blocks that could be
  // kept. Call after Settle().
  void AddNeeds(BudgetNeeds& needs) const;

  // In sample numbers, whether samples are left out or not.
  [[nodiscard]] Result<std::unique_ptr<Order>> MakeOrder(Position start) const;
  [[nodiscard]] const OrderOptions& job() const { return request_.job; }
  [[nodiscard]] const std::shared_ptr<const LeftOut>& left_out() const { return left_out_; }
  // The blocks that tiers keep: those of the order, or single samples if the order reads no
  // blocks. Sizes are counted in units of at least `unit_bytes_min`. In places, if samples are left
  // out: a loader with tiers leaves none out.
  //
  // Errors: those of MakeIndexBlocks
  [[nodiscard]] Result<std::shared_ptr<const BlockMap>> CacheBlocks(
      const std::shared_ptr<const Index>& index, std::uint64_t unit_bytes_min) const;
  // The stream of every node's uses of `blocks`, which CacheBlocks() returned. Every node has as
  // many consecutive ranks as this one. Call after Settle().
  //
  // Errors: those of MakeOrderUses
  [[nodiscard]] Result<std::unique_ptr<UseStream>> MakeUses(std::shared_ptr<const BlockMap> blocks,
                                                            Position start) const;
  [[nodiscard]] OrderParameters parameters() const;
  // The origin of each of parameters(): "given", "default", "default, limited by memory" or
  // "default, from the profile". Call after Settle().
  [[nodiscard]] const OrderParameters& origins() const { return origins_; }
  [[nodiscard]] bool reads_blocks() const { return request_.blocks != nullptr; }
  [[nodiscard]] bool follows_lists() const { return factory_->follows_lists(); }
  [[nodiscard]] std::uint64_t unit_bytes() const { return request_.blocks->unit_bytes(); }
  // The most units that are resident at once. Call after Settle().
  [[nodiscard]] std::uint64_t resident_units() const { return resident_units_; }
  // The expected effect of the order on the labels of a batch. Call after Settle(). std::nullopt:
  // no effect is expected, or no closed form is known.
  //
  // Errors: those of InlineLabels
  [[nodiscard]] Result<std::optional<ExpectedInflation>> Inflation(const Index& index) const;

  // Bytes of a block of average size.
  [[nodiscard]] std::uint64_t mean_block_bytes() const;

 private:
  struct BlockSize {
    std::int64_t samples = 0;  // 0: see MakeIndexBlocks()
    bool from_profile = false;
    std::optional<std::uint64_t> sample_bytes;  // on average, if they were looked at
  };

  static Result<BlockSize> ReadBlockSize(const OrderFactory& factory, OrderRequest& request,
                                         const Index& index, const MachineModel* model);
  Status SetHomes(const Index& index, bool has_peers);
  Status SetBlocks(const std::shared_ptr<const Index>& index, bool has_peers,
                   const MachineModel* model);
  ResolvedOrder(const OrderFactory* factory, OrderRequest request,
                std::shared_ptr<const LeftOut> left_out)
      : factory_(factory), request_(std::move(request)), left_out_(std::move(left_out)) {}

  [[nodiscard]] Result<std::shared_ptr<const BlockMap>> BlocksOf(
      const std::shared_ptr<const Index>& index, std::uint64_t block_samples,
      std::uint64_t unit_bytes_min) const;

  const OrderFactory* factory_;
  OrderRequest request_;                     // of places, if samples are left out
  std::shared_ptr<const LeftOut> left_out_;  // null: none
  BlockSize block_size_;
  std::uint64_t resident_units_ = 0;
  OrderParameters origins_;
};

}  // namespace headrace
