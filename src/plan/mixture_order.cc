#include "plan/mixture_order.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
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
      : first_(first),
        samples_(source.samples),
        item_(Hash64(std::as_bytes(std::span(source.name)))) {}

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
  MixtureOrder(const OrderOptions& job, std::shared_ptr<const Mixture> mixture,
               std::uint64_t steps_per_epoch, Position start)
      : job_(job), mixture_(std::move(mixture)), steps_per_epoch_(steps_per_epoch), next_(start) {
    std::uint64_t first = 0;
    for (const MixtureSource& source : mixture_->sources()) {
      sources_.emplace_back(first, source);
      first += source.samples;
    }
    if (mixture_->length().has_value()) in_epoch_ = mixture_->CountsBefore(*mixture_->length());
  }

  std::optional<Step> Next() override {
    if (next_.epoch >= job_.epochs) return std::nullopt;
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    draws_.resize(RowsOfStep(job_, next_.step) * job_.world_size);
    FillDraws(next_.step * job_.batch_size * job_.world_size);
    rows_.resize(draws_.size());
    DealDraws(draws_, job_.world_size, job_.seed, next_.epoch * steps_per_epoch_ + next_.step,
              rows_);
    for (std::size_t i = 0; i < draws_.size(); ++i) {
      if (rows_[i].rank - job_.rank >= job_.ranks) continue;  // below job_.rank, too
      const Draw draw = draws_[i];
      step.deliveries.push_back({.sample = sources_[draw.source].At(draw.number, job_),
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
    const std::uint64_t epoch_begin = ends ? 0 : next_.epoch * job_.sample_count;
    std::span<Draw> left = draws_;
    while (!left.empty()) {
      const std::uint64_t at = first % job_.sample_count;
      const std::span<Draw> part =
          left.first(std::min<std::uint64_t>(left.size(), job_.sample_count - at));
      mixture_->Draws(epoch_begin + at, part);
      first += part.size();
      left = left.subspan(part.size());
    }
    if (!ends) return;
    for (Draw& draw : draws_) draw.number += next_.epoch * in_epoch_[draw.source];
  }

  const OrderOptions job_;
  const std::shared_ptr<const Mixture> mixture_;
  const std::uint64_t steps_per_epoch_;
  Position next_;
  std::vector<SourceDraws> sources_;
  std::vector<std::uint64_t> in_epoch_;  // of a mixture that ends: each source's draws in an epoch
  std::vector<Draw> draws_;              // of the step
  std::vector<DealtRow> rows_;
};

}  // namespace

Result<std::unique_ptr<Order>> MakeMixtureOrder(const OrderOptions& job,
                                                std::shared_ptr<const Mixture> mixture,
                                                Position start) {
  HEADRACE_CHECK(job.sample_count == mixture->epoch_samples());
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(job));
  HEADRACE_RETURN_IF_ERROR(CheckStart(job, steps, start));
  OrderOptions made = job;
  if (mixture->sample_count() >= made.bijection_from) {
    made.bijection_from = std::min(made.bijection_from, kBijectionFromOfMany);
  }
  return std::unique_ptr<Order>(
      std::make_unique<MixtureOrder>(made, std::move(mixture), steps, start));
}

}  // namespace headrace
