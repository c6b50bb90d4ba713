#include "plan/exact_order.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "plan/mixture/mixture.h"
#include "plan/mixture_order.h"
#include "plan/order_factory.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

class ExactOrder final : public Order {
 public:
  ExactOrder(const OrderOptions& options, std::uint64_t steps_per_epoch, Position start)
      : options_(options), steps_per_epoch_(steps_per_epoch), next_(start) {}

  std::optional<Step> Next() override {
    if (next_.epoch >= options_.epochs) return std::nullopt;
    EnterEpoch(next_.epoch);
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    const std::uint64_t rows = RowsOfStep(options_, next_.step);
    step.deliveries.reserve(rows * options_.ranks);
    const std::uint64_t first_row = next_.step * options_.batch_size;
    for (std::uint32_t rank = options_.rank; rank < options_.rank + options_.ranks; ++rank) {
      for (std::uint64_t slot = 0; slot < rows; ++slot) {
        const std::uint64_t position = (first_row + slot) * options_.world_size + rank;
        step.deliveries.push_back({.sample = SampleAt(position % options_.sample_count),
                                   .rank = rank,
                                   .slot = static_cast<std::uint32_t>(slot)});
      }
    }
    if (++next_.step == steps_per_epoch_) next_ = {.epoch = next_.epoch + 1, .step = 0};
    return step;
  }

 private:
  void EnterEpoch(std::uint64_t epoch) {
    if (!options_.shuffle || epoch_ == epoch) return;
    permutation_.reset();  // Freed before the next one is made: one table at a time.
    permutation_.emplace(options_.sample_count, options_.seed, epoch, RandomStream::kOrder,
                         options_.bijection_from);
    epoch_ = epoch;
  }

  [[nodiscard]] SampleId SampleAt(std::uint64_t position) const {
    return SampleId{options_.shuffle ? permutation_->At(position) : position};
  }

  const OrderOptions options_;
  const std::uint64_t steps_per_epoch_;
  Position next_;
  std::optional<Permutation> permutation_;
  std::optional<std::uint64_t> epoch_;  // the epoch of permutation_
};

class ListOrder final : public Order {
 public:
  explicit ListOrder(ListOrderOptions options)
      : options_(std::move(options)), step_(options_.first_step) {
    std::uint64_t last = 0;
    for (const std::uint64_t end : options_.batch_ends) {
      HEADRACE_CHECK(end >= last);
      last = end;
    }
    HEADRACE_CHECK(last == options_.ids.size());
  }

  std::optional<Step> Next() override {
    if (step_ >= options_.batch_ends.size()) return std::nullopt;
    const std::uint64_t begin = step_ == 0 ? 0 : options_.batch_ends[step_ - 1];
    const std::uint64_t end = options_.batch_ends[step_];
    Step step;
    step.epoch = options_.epoch;
    step.step = step_;
    step.ends_epoch = step_ + 1 == options_.batch_ends.size();
    step.deliveries.reserve(end - begin);
    for (std::uint64_t i = begin; i < end; ++i) {
      step.deliveries.push_back({.sample = options_.ids[i],
                                 .rank = options_.rank,
                                 .slot = static_cast<std::uint32_t>(i - begin)});
    }
    ++step_;
    return step;
  }

 private:
  const ListOrderOptions options_;
  std::uint64_t step_;
};

class ExactFactory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "exact"; }
  [[nodiscard]] bool reads_blocks() const override { return false; }
  [[nodiscard]] bool follows_lists() const override { return true; }
  [[nodiscard]] bool takes_mixtures() const override { return true; }
  [[nodiscard]] std::optional<BatchSharing> ExpectedSharing(
      const OrderRequest& /*resolved*/) const override {
    return BatchSharing{};  // Samples of a batch are drawn one by one from all.
  }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    HEADRACE_RETURN_IF_ERROR(StepsPerEpoch(request.job).status());
    ParameterReader reader(name(), request.parameters);
    reader.BijectionFrom();
    if (request.mixture != nullptr) reader.Computed("mixture", request.mixture->Hash());
    return reader.Finish();
  }

  [[nodiscard]] Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const override {
    HEADRACE_RETURN_IF_ERROR(Resolve(request).status());
    return std::uint64_t{0};
  }

  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                    Position start) const override {
    HEADRACE_ASSIGN_OR_RETURN(const OrderParameters resolved, Resolve(request));
    OrderOptions job = request.job;
    job.bijection_from = BijectionFrom(resolved);
    if (request.mixture != nullptr) return MakeMixtureOrder(job, request.mixture, start);
    return MakeExactOrder(job, start);
  }
};

}  // namespace

const OrderFactory& ExactOrderFactory() {
  static const ExactFactory factory;
  return factory;
}

Result<std::unique_ptr<Order>> MakeExactOrder(const OrderOptions& options, Position start) {
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(options));
  HEADRACE_RETURN_IF_ERROR(CheckStart(options, steps, start));
  return std::unique_ptr<Order>(std::make_unique<ExactOrder>(options, steps, start));
}

std::unique_ptr<Order> MakeListOrder(ListOrderOptions options) {
  return std::make_unique<ListOrder>(std::move(options));
}

Status CheckList(const ListOrderOptions& list, std::uint64_t sample_count) {
  const bool ascending = std::is_sorted(list.batch_ends.begin(), list.batch_ends.end());
  const std::uint64_t last = list.batch_ends.empty() ? 0 : list.batch_ends.back();
  if (!ascending || last != list.ids.size()) {
    return InvalidArgument("batch ends of a list: must ascend to its {} ids, they end at {}",
                           list.ids.size(), last);
  }
  if (list.epoch >= kEpochsMax) {
    return InvalidArgument("epoch of a list: got {}, must be below {}", list.epoch, kEpochsMax);
  }
  for (std::size_t i = 0; i < list.ids.size(); ++i) {
    if (Raw(list.ids[i]) < sample_count) continue;
    return OutOfRange("sampler position {}: sample {}, the dataset has {}", i, Raw(list.ids[i]),
                      sample_count);
  }
  return Status();
}

}  // namespace headrace
