#include "plan/placement/uses.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "plan/mixture/mixture.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

// The end of block numbers: tables of placements hold them in 32 bits, with one number for "none".
constexpr std::uint64_t kBlocksMax = 0xffff'fffe;

std::uint32_t FirstRank(const NodeSplit& split, std::uint32_t node) {
  return static_cast<std::uint32_t>(
      std::min(std::uint64_t{node} * split.ranks_per_node, std::uint64_t{split.world_size}));
}

// The `exact` order: one permutation an epoch serves all ranks.
class ExactUses final : public UseStream {
 public:
  ExactUses(const OrderOptions& job, std::uint64_t steps_per_epoch,
            std::shared_ptr<const BlockMap> blocks, const NodeSplit& split, Position start)
      : job_(job),
        steps_per_epoch_(steps_per_epoch),
        blocks_(std::move(blocks)),
        single_(blocks_->block_count() == blocks_->sample_count()),
        split_(split),
        next_(start) {}

  bool Next(StepUses& uses) override {
    if (next_.epoch >= job_.epochs) return false;
    EnterEpoch(next_.epoch);
    uses.at = next_;
    uses.ends_epoch = next_.step + 1 == steps_per_epoch_;
    const std::uint64_t rows = RowsOfStep(job_, next_.step);
    uses.blocks.resize(rows * job_.world_size);
    uses.node_ends.clear();
    const std::uint64_t first_row = next_.step * job_.batch_size;
    std::size_t filled = 0;
    for (std::uint32_t node = 0; node < split_.nodes(); ++node) {
      for (std::uint32_t rank = FirstRank(split_, node); rank < FirstRank(split_, node + 1);
           ++rank) {
        std::uint64_t position = first_row * job_.world_size + rank;
        for (std::uint64_t row = 0; row < rows; ++row, position += job_.world_size) {
          uses.blocks[filled++] = BlockAt(position);
        }
      }
      uses.node_ends.push_back(filled);
    }
    if (uses.ends_epoch) {
      next_ = {.epoch = next_.epoch + 1, .step = 0};
    } else {
      ++next_.step;
    }
    return true;
  }

 private:
  void EnterEpoch(std::uint64_t epoch) {
    if (!job_.shuffle || epoch_ == epoch) return;
    permutation_.reset();  // Freed before the next one is made: one table at a time.
    permutation_.emplace(job_.sample_count, job_.seed, epoch, RandomStream::kOrder,
                         job_.bijection_from);
    epoch_ = epoch;
  }

  [[nodiscard]] std::uint32_t BlockAt(std::uint64_t position) const {
    // Padded from the epoch's own beginning.
    if (position >= job_.sample_count) position %= job_.sample_count;
    const std::uint64_t sample = job_.shuffle ? permutation_->At(position) : position;
    return static_cast<std::uint32_t>(single_ ? sample : blocks_->Find(SampleId{sample}));
  }

  const OrderOptions job_;
  const std::uint64_t steps_per_epoch_;
  const std::shared_ptr<const BlockMap> blocks_;
  const bool single_;  // blocks of one sample: no lookup
  const NodeSplit split_;
  Position next_;
  std::optional<Permutation> permutation_;
  std::optional<std::uint64_t> epoch_;  // the epoch of permutation_
};

// Any order: merges the streams of all nodes.
class MergedUses final : public UseStream {
 public:
  MergedUses(std::vector<std::unique_ptr<Order>> orders, std::shared_ptr<const BlockMap> blocks)
      : orders_(std::move(orders)), blocks_(std::move(blocks)) {}

  bool Next(StepUses& uses) override {
    uses.blocks.clear();
    uses.node_ends.clear();
    for (const std::unique_ptr<Order>& order : orders_) {
      const std::optional<Step> step = order->Next();
      if (!step.has_value()) {
        HEADRACE_CHECK(uses.node_ends.empty());  // All nodes take the same number of steps.
        return false;
      }
      uses.at = {.epoch = step->epoch, .step = step->step};
      uses.ends_epoch = step->ends_epoch;
      Add(*step, uses);
      uses.node_ends.push_back(uses.blocks.size());
    }
    return true;
  }

 private:
  void Add(const Step& step, StepUses& uses) const {
    for (const BlockRead& read : step.reads) uses.blocks.push_back(BlockOf(read.first));
    for (const Delivery& delivery : step.deliveries) {
      if (delivery.block_read != kNoBlockRead) continue;
      uses.blocks.push_back(BlockOf(delivery.sample));
    }
  }

  [[nodiscard]] std::uint32_t BlockOf(SampleId sample) const {
    return static_cast<std::uint32_t>(blocks_->Find(sample));
  }

  std::vector<std::unique_ptr<Order>> orders_;  // one for each node
  const std::shared_ptr<const BlockMap> blocks_;
};

class ListUses final : public UseStream {
 public:
  explicit ListUses(const ListOrderOptions& list) : order_(MakeListOrder(list)) {}

  bool Next(StepUses& uses) override {
    const std::optional<Step> step = order_->Next();
    if (!step.has_value()) return false;
    uses.at = {.epoch = step->epoch, .step = step->step};
    uses.ends_epoch = step->ends_epoch;
    uses.blocks.clear();
    for (const Delivery& delivery : step->deliveries) {
      HEADRACE_CHECK(Raw(delivery.sample) < kBlocksMax);
      uses.blocks.push_back(static_cast<std::uint32_t>(Raw(delivery.sample)));
    }
    uses.node_ends.assign(1, uses.blocks.size());
    return true;
  }

 private:
  const std::unique_ptr<Order> order_;
};

Status CheckSplit(const OrderRequest& request, const BlockMap& blocks, const NodeSplit& split) {
  if (blocks.block_count() > kBlocksMax) {
    return InvalidArgument(
        "planning what tiers keep: got {} blocks, must be below 2^32 - 1; use larger blocks",
        blocks.block_count());
  }
  const std::uint64_t samples =
      request.mixture != nullptr ? request.mixture->sample_count() : request.job.sample_count;
  if (blocks.sample_count() != samples) {
    return InvalidArgument("planning what tiers keep: the order has {}, its blocks have {}",
                           Counted(samples, "sample"), blocks.sample_count());
  }
  if (split.ranks_per_node == 0) {
    return InvalidArgument("ranks_per_node: got 0, must be at least 1");
  }
  if (split.world_size != request.job.world_size) {
    return InvalidArgument(
        "planning what tiers keep: the order is made for world_size {}, the split into nodes for "
        "{}; give both the same",
        request.job.world_size, split.world_size);
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<UseStream>> MakeOrderUses(const OrderFactory& factory,
                                                 const OrderRequest& request,
                                                 std::shared_ptr<const BlockMap> blocks,
                                                 const NodeSplit& split, Position start) {
  OrderRequest of_node = request;
  of_node.job.rank = 0;
  of_node.job.ranks = 1;
  HEADRACE_ASSIGN_OR_RETURN(const OrderParameters resolved, factory.Resolve(of_node));
  HEADRACE_RETURN_IF_ERROR(CheckSplit(of_node, *blocks, split));
  if (&factory == &ExactOrderFactory() && request.mixture == nullptr) {
    of_node.job.bijection_from = BijectionFrom(resolved);
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(of_node.job));
    HEADRACE_RETURN_IF_ERROR(CheckStart(of_node.job, steps, start));
    return std::unique_ptr<UseStream>(
        std::make_unique<ExactUses>(of_node.job, steps, std::move(blocks), split, start));
  }
  std::vector<std::unique_ptr<Order>> orders;
  for (std::uint32_t node = 0; node < split.nodes(); ++node) {
    of_node.job.rank = FirstRank(split, node);
    of_node.job.ranks = FirstRank(split, node + 1) - of_node.job.rank;
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> order, factory.Make(of_node, start));
    orders.push_back(std::move(order));
  }
  return std::unique_ptr<UseStream>(
      std::make_unique<MergedUses>(std::move(orders), std::move(blocks)));
}

std::unique_ptr<UseStream> MakeListUses(const ListOrderOptions& list) {
  return std::make_unique<ListUses>(list);
}

}  // namespace headrace
