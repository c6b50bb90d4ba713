#include "plan/epoch_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/order_factory.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

using testing::HasSubstr;

using Ids = std::vector<std::uint64_t>;

// Blocks and sizes by rule: block i holds counts[i] samples, sample s takes 1 + s * step mod wheel.
class TestBlocks final : public BlockMap {
 public:
  TestBlocks(const std::vector<std::uint32_t>& counts, std::uint64_t step, std::uint64_t wheel)
      : step_(step), wheel_(wheel) {
    for (const std::uint32_t count : counts) {
      blocks_.push_back({.first = SampleId{samples_}, .count = count});
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i < count; ++i) sum += Units(samples_ + i);
      samples_ += count;
      total_ += sum;
      largest_ = std::max(largest_, sum);
    }
  }

  [[nodiscard]] std::uint64_t Units(std::uint64_t sample) const {
    return 1 + sample * step_ % wheel_;
  }
  [[nodiscard]] std::uint64_t sample_count() const override { return samples_; }
  [[nodiscard]] std::uint64_t block_count() const override { return blocks_.size(); }
  [[nodiscard]] Block block(std::uint64_t position) const override { return blocks_[position]; }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return 64; }
  void Charges(SampleId first, std::span<std::uint32_t> units) const override {
    for (std::size_t i = 0; i < units.size(); ++i) {
      units[i] = static_cast<std::uint32_t>(Units(Raw(first) + i));
    }
  }
  [[nodiscard]] std::uint64_t total_units() const override { return total_; }
  [[nodiscard]] std::uint64_t largest_block() const override { return largest_; }

 private:
  const std::uint64_t step_;
  const std::uint64_t wheel_;
  std::vector<Block> blocks_;
  std::uint64_t samples_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t largest_ = 0;
};

std::uint64_t GlobalBatch(const EpochOrderOptions& options) {
  return options.job.batch_size * options.job.world_size;
}

std::uint64_t Delivered(const EpochOrderOptions& options) {
  const std::uint64_t n = options.job.sample_count;
  return options.job.drop_last ? n / GlobalBatch(options) * GlobalBatch(options) : n;
}

// docs/orders.md on lists, slowly: the sample at every position of an epoch, padding aside.
class Model {
 public:
  Model(const EpochOrderOptions& options, std::uint64_t epoch)
      : options_(options), blocks_(*options.blocks), epoch_(epoch) {}

  Ids Positions() {
    const std::uint64_t pools = options_.pools;
    Ids positions(Delivered(options_));
    for (std::uint64_t pool = 0; pool < pools; ++pool) {
      const Ids drawn = Draws(pool);
      for (std::size_t k = 0; k < drawn.size(); ++k) positions[k * pools + pool] = drawn[k];
    }
    return positions;
  }

 private:
  std::uint64_t Units(const Ids& ids) const {
    std::uint64_t sum = 0;
    for (const std::uint64_t id : ids) {
      std::uint32_t units = 0;
      blocks_.Charges(SampleId{id}, {&units, 1});
      sum += units;
    }
    return sum;
  }

  std::vector<Ids> Pieces(std::uint64_t pool, std::uint64_t epoch) const {
    const Permutation permutation(blocks_.block_count(), options_.job.seed, epoch,
                                  RandomStream::kOrder);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sequence;  // sample, block
    for (std::uint64_t at = 0; at < blocks_.block_count(); ++at) {
      const BlockMap::Block block = blocks_.block(permutation.At(at));
      for (std::uint64_t i = 0; i < block.count; ++i) {
        sequence.emplace_back(Raw(block.first) + i, at);
      }
    }
    sequence.resize(Delivered(options_));
    std::uint64_t begin = 0;
    for (std::uint64_t before = 0; before < pool; ++before) begin += Length(before);
    std::vector<Ids> pieces;
    for (std::uint64_t i = begin; i < begin + Length(pool); ++i) {
      if (i == begin || sequence[i].second != sequence[i - 1].second) pieces.emplace_back();
      pieces.back().push_back(sequence[i].first);
    }
    return pieces;
  }

  std::uint64_t Length(std::uint64_t pool) const {
    std::uint64_t length = 0;
    for (std::uint64_t g = pool; g < Delivered(options_); g += options_.pools) ++length;
    return length;
  }

  Ids Draws(std::uint64_t pool) {
    const std::uint64_t budget = options_.pool_units / options_.pools;
    const std::uint64_t full = budget - budget * options_.join_permille / 1000;
    const std::uint64_t at_once = epoch_ == 0 ? full * options_.first_fill_permille / 1000 : full;
    const std::uint64_t delay =
        std::max<std::uint64_t>(1, budget * options_.job.sample_count * options_.join_permille /
                                       (1000 * blocks_.total_units()));
    std::vector<Ids> to_issue = Pieces(pool, epoch_);
    const std::size_t of_this_epoch = to_issue.size();
    for (Ids& piece : Pieces(pool, epoch_ + 1)) to_issue.push_back(std::move(piece));
    std::vector<std::uint64_t> joins;  // of the pieces issued
    std::size_t issued = 0;
    std::size_t joined_pieces = 0;
    std::uint64_t units = 0;
    Ids resident;
    Ids joined;
    Ids drawn;
    Prng words(options_.job.seed, epoch_, RandomStream::kPool, pool);
    for (std::uint64_t k = 0; k < Length(pool); ++k) {
      while (issued < to_issue.size() && Units(resident) + Units(to_issue[issued]) <= budget) {
        const Ids& piece = to_issue[issued++];
        resident.insert(resident.end(), piece.begin(), piece.end());
        if (issued > of_this_epoch) continue;
        units += Units(piece);
        std::uint64_t join = k + delay;
        if (units <= budget) {
          join =
              units <= at_once || budget == full ? 0 : (units - at_once) * delay / (budget - full);
        }
        joins.push_back(joins.empty() ? join : std::max(join, joins.back()));
      }
      const auto join_one = [&] {
        const Ids& piece = to_issue.at(joined_pieces++);
        joined.insert(joined.end(), piece.begin(), piece.end());
      };
      while (joined_pieces < joins.size() && joins[joined_pieces] <= k) join_one();
      if (joined.empty()) join_one();
      const std::uint64_t r = words.Below(joined.size());
      drawn.push_back(joined[r]);
      joined[r] = joined.back();
      joined.pop_back();
      resident.erase(std::ranges::find(resident, drawn.back()));
    }
    return drawn;
  }

  const EpochOrderOptions& options_;
  const BlockMap& blocks_;
  const std::uint64_t epoch_;
};

std::vector<Step> Pull(const EpochOrderOptions& options, Position start = {},
                       std::map<std::string, double>* counters = nullptr) {
  auto order = MakeEpochOrder(options, start);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  if (!order.ok()) return steps;
  while (auto step = order.value()->Next()) steps.push_back(*std::move(step));
  if (counters != nullptr) *counters = order.value()->counters();
  return steps;
}

// A job whose sizes a seed decides: primes, single samples, blocks larger and smaller than the
// batch, even and uneven ones, pools from the least legal up to more than the dataset.
EpochOrderOptions RandomJob(std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kAugment);
  constexpr std::array<std::uint64_t, 8> kSamples = {1, 2, 7, 31, 64, 97, 120, 211};
  const std::uint64_t samples = kSamples.at(prng.Below(kSamples.size()));
  std::vector<std::uint32_t> counts;
  const std::uint64_t largest = 1 + prng.Below(prng.Below(4) == 0 ? samples : 12);
  const bool even = prng.Below(2) == 0;
  for (std::uint64_t left = samples; left > 0; left -= counts.back()) {
    const std::uint64_t count = even ? largest : 1 + prng.Below(largest);
    counts.push_back(static_cast<std::uint32_t>(std::min(count, left)));
  }
  auto blocks = std::make_shared<TestBlocks>(counts, prng.Below(2) * 5, 1 + prng.Below(11));
  EpochOrderOptions options{.blocks = blocks};
  options.job = {.sample_count = samples,
                 .batch_size = 1 + prng.Below(9),
                 .world_size = static_cast<std::uint32_t>(1 + prng.Below(8)),
                 .seed = prng.Next64(),
                 .drop_last = prng.Below(2) == 0,
                 .epochs = 3};
  if (options.job.drop_last && GlobalBatch(options) > samples) options.job.drop_last = false;
  options.pools = static_cast<std::uint32_t>(
      1 + prng.Below(std::min<std::uint64_t>(blocks->block_count(), 12)));
  const std::uint64_t batch = std::min(GlobalBatch(options), samples);
  const std::uint64_t share = (batch + options.pools - 1) / options.pools;
  const std::uint64_t least = std::max(2 * blocks->largest_block(),
                                       (share * blocks->total_units() + samples - 1) / samples);
  options.pool_units = options.pools * (least + prng.Below(2) * prng.Below(1 + 2 * least));
  if (prng.Below(8) == 0) options.pool_units += options.pools * blocks->total_units();
  options.join_permille = static_cast<std::uint32_t>(prng.Below(901));
  if (prng.Below(3) == 0)
    options.first_fill_permille = static_cast<std::uint32_t>(prng.Below(1001));
  return options;
}

constexpr std::uint64_t kJobs = 400;

std::string Describe(std::uint64_t seed, const EpochOrderOptions& options) {
  return "job " + std::to_string(seed) + ": " + std::to_string(options.job.sample_count) +
         " samples, " + std::to_string(options.blocks->block_count()) + " blocks, batch " +
         std::to_string(options.job.batch_size) + " x " + std::to_string(options.job.world_size) +
         ", pools " + std::to_string(options.pools) + " of " +
         std::to_string(options.pool_units / options.pools) + " units, join " +
         std::to_string(options.join_permille) + ", first fill " +
         std::to_string(options.first_fill_permille) + (options.job.drop_last ? ", drop_last" : "");
}

TEST(EpochOrderTest, EveryRankIsGivenWhatThePageSays) {
  for (std::uint64_t seed = 0; seed < kJobs; ++seed) {
    EpochOrderOptions options = RandomJob(seed);
    SCOPED_TRACE(Describe(seed, options));
    std::vector<Ids> epochs;
    for (std::uint64_t epoch = 0; epoch < options.job.epochs; ++epoch) {
      epochs.push_back(Model(options, epoch).Positions());
    }
    const std::uint64_t global = GlobalBatch(options);
    for (std::uint32_t rank = 0; rank < options.job.world_size; ++rank) {
      options.job.rank = rank;
      const std::vector<Step> steps = Pull(options);
      const std::uint64_t per_epoch = StepsPerEpoch(options.job).value();
      ASSERT_EQ(steps.size(), per_epoch * options.job.epochs);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const Ids& positions = epochs[i / per_epoch];
        const std::uint64_t begin = i % per_epoch * global;
        ASSERT_EQ(steps[i].epoch, i / per_epoch);
        ASSERT_EQ(steps[i].step, i % per_epoch);
        ASSERT_EQ(steps[i].ends_epoch, (i + 1) % per_epoch == 0);
        ASSERT_EQ(steps[i].deliveries.size(), RowsOfStep(options.job, steps[i].step));
        for (std::uint64_t slot = 0; slot < steps[i].deliveries.size(); ++slot) {
          const Delivery& delivery = steps[i].deliveries[slot];
          std::uint64_t g = begin + slot * options.job.world_size + rank;
          const bool padding = g >= positions.size();
          if (padding) g = begin + (g - positions.size()) % (positions.size() - begin);
          ASSERT_EQ(Raw(delivery.sample), positions[g]);
          ASSERT_EQ(delivery.rank, rank);
          ASSERT_EQ(delivery.slot, slot);
          ASSERT_EQ(delivery.block_read == kNoBlockRead, padding);
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace
