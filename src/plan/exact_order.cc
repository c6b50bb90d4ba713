#include "plan/exact_order.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

// Bounds that keep every product below 2^64 and every mistake visible.
constexpr std::uint64_t kSamplesMax = std::uint64_t{1} << 40;
constexpr std::uint64_t kBatchMax = std::uint64_t{1} << 24;
constexpr std::uint32_t kWorldMax = std::uint32_t{1} << 20;

Status CheckBetween(const char* what, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
  if (value >= least && value <= most) return Status();
  return Status(StatusCode::kInvalidArgument, std::string(what) + ": got " + std::to_string(value) +
                                                  ", must be in [" + std::to_string(least) + ", " +
                                                  std::to_string(most) + "]");
}

class ExactOrder final : public Order {
 public:
  ExactOrder(const ExactOrderOptions& options, std::uint64_t steps_per_epoch, Position start)
      : options_(options), steps_per_epoch_(steps_per_epoch), next_(start) {}

  std::optional<Step> Next() override {
    if (next_.epoch >= options_.epochs) return std::nullopt;
    EnterEpoch(next_.epoch);
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    const std::uint64_t rows = RowsOf(next_.step);
    step.deliveries.reserve(rows);
    for (std::uint64_t slot = 0; slot < rows; ++slot) {
      const std::uint64_t row = next_.step * options_.batch_size + slot;
      const std::uint64_t position = row * options_.world_size + options_.rank;
      step.deliveries.push_back({.sample = SampleAt(position % options_.sample_count),
                                 .rank = options_.rank,
                                 .slot = static_cast<std::uint32_t>(slot)});
    }
    if (++next_.step == steps_per_epoch_) next_ = {.epoch = next_.epoch + 1, .step = 0};
    return step;
  }

 private:
  void EnterEpoch(std::uint64_t epoch) {
    if (!options_.shuffle || epoch_ == epoch) return;
    permutation_.reset();  // Before the next one is made: one table at a time.
    permutation_.emplace(options_.sample_count, options_.seed, epoch, RandomStream::kOrder);
    epoch_ = epoch;
  }

  [[nodiscard]] SampleId SampleAt(std::uint64_t position) const {
    return SampleId{options_.shuffle ? permutation_->At(position) : position};
  }

  [[nodiscard]] std::uint64_t RowsOf(std::uint64_t step) const {
    const std::uint64_t rows_of_rank =
        (options_.sample_count + options_.world_size - 1) / options_.world_size;
    return options_.drop_last
               ? options_.batch_size
               : std::min(options_.batch_size, rows_of_rank - step * options_.batch_size);
  }

  const ExactOrderOptions options_;
  const std::uint64_t steps_per_epoch_;
  Position next_;
  std::optional<Permutation> permutation_;
  std::optional<std::uint64_t> epoch_;  // of permutation_
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

}  // namespace

Result<std::uint64_t> ExactStepsPerEpoch(const ExactOrderOptions& options) {
  HEADRACE_RETURN_IF_ERROR(CheckBetween("samples", options.sample_count, 1, kSamplesMax));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("batch_size", options.batch_size, 1, kBatchMax));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("world_size", options.world_size, 1, kWorldMax));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("rank", options.rank, 0, options.world_size - 1));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("epochs", options.epochs, 1, kEpochsMax));
  const std::uint64_t world = options.world_size;
  if (!options.drop_last) {
    const std::uint64_t rows = (options.sample_count + world - 1) / world;
    return (rows + options.batch_size - 1) / options.batch_size;
  }
  const std::uint64_t steps = options.sample_count / (options.batch_size * world);
  if (steps == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "batch_size " + std::to_string(options.batch_size) + " x world_size " +
                      std::to_string(world) + " with drop_last: dataset has " +
                      std::to_string(options.sample_count) +
                      " samples, so an epoch would have no batch; lower batch_size or use "
                      "drop_last=False");
  }
  return steps;
}

Result<std::unique_ptr<Order>> MakeExactOrder(const ExactOrderOptions& options, Position start) {
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, ExactStepsPerEpoch(options));
  if (start.epoch > options.epochs || start.step >= steps) {
    return Status(StatusCode::kOutOfRange, "starting at epoch " + std::to_string(start.epoch) +
                                               " step " + std::to_string(start.step) +
                                               ": there are " + std::to_string(options.epochs) +
                                               " epochs of " + std::to_string(steps) + " steps");
  }
  return std::unique_ptr<Order>(std::make_unique<ExactOrder>(options, steps, start));
}

std::unique_ptr<Order> MakeListOrder(ListOrderOptions options) {
  return std::make_unique<ListOrder>(std::move(options));
}

}  // namespace headrace
