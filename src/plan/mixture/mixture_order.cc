#include "plan/mixture/mixture_order.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "base/hash.h"
#include "base/prng.h"
#include "plan/mixture/dealing.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

// Of sources that have so many samples together that their tables would take long: the least that
// has a keyed bijection.
constexpr std::uint64_t kBijectionFromOfMany = 4096;

// The sequence of draws of one source.
class SourceDraws {
 public:
  SourceDraws(std::uint64_t first, const MixtureSource& source)
      : first_(first), samples_(source.samples), item_(Hash64(std::as_bytes(std::span(source.name)))) {}

  // Draws that ascend are fast: each pass's permutation is made once.
  SampleId At(std::uint64_t number, const OrderOptions& job) {
    const std::uint64_t pass = number / samples_;
    const std::uint64_t position = number % samples_;
    if (!job.shuffle) return SampleId{first_ + position};
    if (pass_ != pass) {
      permutation_.reset();  // Freed before the next one is made.
      permutation_.emplace(samples_, job.seed, pass % kEpochsMax, RandomStream::kOrder,
                           job.bijection_from, item_);
      pass_ = pass;
    }
    return SampleId{first_ + permutation_->At(position)};
  }

 private:
  std::uint64_t first_;
  std::uint64_t samples_;
  std::uint64_t item_;  // of its random numbers: by name, so that no other source changes them
  std::optional<Permutation> permutation_;
  std::optional<std::uint64_t> pass_;  // of permutation_
};

class MixtureOrder final : public Order {
 public:
  MixtureOrder(const MixtureOrderOptions& options, std::uint64_t steps_per_epoch, Position start)
      : options_(options), steps_per_epoch_(steps_per_epoch), next_(start) {
    std::uint64_t first = 0;
    for (const MixtureSource& source : options.mixture->sources()) {
      sources_.emplace_back(first, source);
      first += source.samples;
    }
    if (options.mixture->length().has_value()) {
      in_epoch_ = options.mixture->CountsBefore(*options.mixture->length());
    }
  }

  std::optional<Step> Next() override {
    const OrderOptions& job = options_.job;
    if (next_.epoch >= job.epochs) return std::nullopt;
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    OrderOptions of_epoch = job;
    of_epoch.sample_count = options_.epoch_positions;
    draws_.resize(RowsOfStep(of_epoch, next_.step) * job.world_size);
    FillDraws(next_.step * job.batch_size * job.world_size);
    rows_.resize(draws_.size());
    DealDraws(draws_, job.world_size, job.seed, next_.epoch * steps_per_epoch_ + next_.step, rows_);
    for (std::size_t i = 0; i < draws_.size(); ++i) {
      if (rows_[i].rank - job.rank >= job.ranks) continue;  // below job.rank, too
      const Draw draw = draws_[i];
      step.deliveries.push_back(
          {.sample = sources_[draw.source].At(draw.number, job),
           .rank = rows_[i].rank,
           .slot = rows_[i].slot});
    }
    std::sort(step.deliveries.begin(), step.deliveries.end(),
              [](const Delivery& a, const Delivery& b) {
                return a.rank != b.rank ? a.rank < b.rank : a.slot < b.slot;
              });
    if (++next_.step == steps_per_epoch_) next_ = {.epoch = next_.epoch + 1, .step = 0};
    return step;
  }

 private:
  // The draws at `first` of the epoch and after it; what is past its end, from its beginning.
  void FillDraws(std::uint64_t first) {
    const bool ends = !in_epoch_.empty();
    const std::uint64_t epoch_begin = ends ? 0 : next_.epoch * options_.epoch_positions;
    std::span<Draw> left = draws_;
    while (!left.empty()) {
      const std::uint64_t at = first % options_.epoch_positions;
      const std::span<Draw> part =
          left.first(std::min<std::uint64_t>(left.size(), options_.epoch_positions - at));
      options_.mixture->Draws(epoch_begin + at, part);
      first += part.size();
      left = left.subspan(part.size());
    }
    if (!ends) return;
    for (Draw& draw : draws_) draw.number += next_.epoch * in_epoch_[draw.source];
  }

  const MixtureOrderOptions options_;
  const std::uint64_t steps_per_epoch_;
  Position next_;
  std::vector<SourceDraws> sources_;
  std::vector<std::uint64_t> in_epoch_;  // of a mixture that ends: each source's draws in an epoch
  std::vector<Draw> draws_;              // of the step
  std::vector<DealtRow> rows_;
};

}  // namespace

Result<std::unique_ptr<Order>> MakeMixtureOrder(const MixtureOrderOptions& options,
                                                Position start) {
  const Mixture& mixture = *options.mixture;
  std::uint64_t samples = 0;
  for (const MixtureSource& source : mixture.sources()) samples += source.samples;
  if (samples != options.job.sample_count) {
    return InvalidArgument("mixture: its sources have {} samples, the dataset has {}", samples,
                           options.job.sample_count);
  }
  if (mixture.length().value_or(options.epoch_positions) != options.epoch_positions) {
    return InvalidArgument("mixture: it ends after {} samples, but an epoch has {}",
                           *mixture.length(), options.epoch_positions);
  }
  OrderOptions of_epoch = options.job;
  of_epoch.sample_count = options.epoch_positions;
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(of_epoch));
  HEADRACE_RETURN_IF_ERROR(CheckStart(of_epoch, steps, start));
  MixtureOrderOptions made = options;
  if (samples >= made.job.bijection_from) {
    made.job.bijection_from = std::min(made.job.bijection_from, kBijectionFromOfMany);
  }
  return std::unique_ptr<Order>(std::make_unique<MixtureOrder>(made, steps, start));
}

}  // namespace headrace
