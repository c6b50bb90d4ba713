#include "plan/epoch_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "plan/epoch_parameters.h"
#include "plan/epoch_pool.h"
#include "plan/epoch_sharing.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

// Bounds that keep every product below 2^128 and reveal mistakes.
constexpr std::int64_t kPoolBytesMax = std::int64_t{1} << 56;
constexpr std::int64_t kPoolsMax = 0xffff'ffff;
constexpr std::uint32_t kJoinPermilleMax = 900;
constexpr std::uint32_t kPermille = 1000;
constexpr std::size_t kDrawnTogether = 48;  // pools whose cache misses overlap

std::uint64_t GlobalBatch(const OrderOptions& job) { return job.batch_size * job.world_size; }

// Samples that an epoch delivers, without padding.
std::uint64_t Delivered(const OrderOptions& job, std::uint64_t steps_per_epoch) {
  return job.drop_last ? steps_per_epoch * GlobalBatch(job) : job.sample_count;
}

Status CheckPermille(const char* name, std::uint32_t value, std::uint32_t most) {
  if (value <= most) return Status();
  return InvalidArgument("order epoch: {}: got {}, must be in [0, {}]", name, value, most);
}

// Checks that come before those of parameters.
Status CheckInputs(const OrderOptions& job, const BlockMap* blocks) {
  HEADRACE_RETURN_IF_ERROR(StepsPerEpoch(job).status());
  if (!job.shuffle) {
    return InvalidArgument(
        "order epoch: shuffle=False, but samples are drawn at random from pools; use order 'exact' "
        "to have them in sequence, or shuffle=True");
  }
  if (blocks == nullptr) {
    return InvalidArgument("order epoch: needs a map of blocks; use order 'exact' or give blocks");
  }
  if (blocks->sample_count() != job.sample_count) {
    return InvalidArgument(
        "order epoch: the map of blocks holds {}, the job has {}; both must describe one dataset",
        Counted(blocks->sample_count(), "sample"), job.sample_count);
  }
  return Status();
}

// Rounded for people, and exact.
std::string BothBytes(std::uint64_t bytes) {
  const std::string rounded = FormatBytes(bytes);
  return bytes < kKiB ? rounded : fmt::format("{} ({})", rounded, Counted(bytes, "byte"));
}

Status CheckPools(const EpochOrderOptions& options) {
  const BlockMap& blocks = *options.blocks;
  if (options.pools < 1 || options.pools > blocks.block_count()) {
    return InvalidArgument(
        "order epoch: pools: got {}, must be in [1, {}], the number of blocks; lower pools or make "
        "the blocks smaller",
        options.pools, blocks.block_count());
  }
  HEADRACE_RETURN_IF_ERROR(CheckPermille("join_permille", options.join_permille, kJoinPermilleMax));
  HEADRACE_RETURN_IF_ERROR(
      CheckPermille("first_fill_permille", options.first_fill_permille, kPermille));
  HEADRACE_RETURN_IF_ERROR(
      CheckPermille("first_join_permille", options.first_join_permille, kPermille));
  const std::uint64_t unit = blocks.unit_bytes();
  if (options.pool_units > std::uint64_t{kPoolBytesMax} / unit) {
    return InvalidArgument(
        "order epoch: pool_bytes: got {} units of {}, must be at most 2^56 bytes",
        options.pool_units, Counted(unit, "byte"));
  }
  const std::uint64_t budget = options.pool_units / options.pools;
  const std::uint64_t least = LeastEpochPool(options.job, blocks, options.pools);
  if (budget >= least) return Status();
  const std::uint64_t two_blocks = 2 * blocks.largest_block();
  const std::string needed =
      least == two_blocks
          ? "two of the largest blocks (" + FormatBytes(blocks.largest_block() * unit) + " each)"
          : "its share of a global batch of " + Counted(GlobalBatch(options.job), "sample");
  return InvalidArgument(
      "order epoch: pool_bytes: {} is too little for {}: a pool needs at least {}, {}; give pool= "
      "at least {}{}",
      BothBytes(options.pool_units * unit), Counted(options.pools, "pool"), BothBytes(least * unit),
      needed, Counted(options.pools * least * unit, "byte"),
      options.pools == 1 ? ", or make the blocks smaller" : ", or lower pools=");
}

EpochPoolPlan::Options PoolOptions(const EpochOrderOptions& options, std::uint64_t delivered) {
  const std::uint64_t budget = options.pool_units / options.pools;
  const auto permille_of = [](std::uint64_t value, std::uint32_t permille) {
    return static_cast<std::uint64_t>(Uint128{value} * permille / kPermille);
  };
  const std::uint64_t full_join = budget - permille_of(budget, options.join_permille);
  const auto draws_of = [&](std::uint32_t permille) {  // draws that empty this share of a pool
    return std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(Uint128{budget} * options.job.sample_count * permille /
                                      (Uint128{kPermille} * options.blocks->total_units())));
  };
  return {
      .blocks = options.blocks,
      .seed = options.job.seed,
      .bijection_from = options.job.bijection_from,
      .stretches = {.delivered = delivered, .pools = options.pools},
      .budget = budget,
      .full_join = full_join,
      .full_join_of_run = permille_of(full_join, options.first_fill_permille),
      .first_join = options.first_join_permille == 0 ? 0 : draws_of(options.first_join_permille),
      .delay = draws_of(options.join_permille)};
}

// A block read joins `positions` global positions after its issue. Returns in how many steps it is
// due.
std::uint64_t StepsUntilDue(std::uint64_t positions, const OrderOptions& job) {
  const std::uint64_t batch = GlobalBatch(job);
  HEADRACE_CHECK(batch > 0);
  return std::max<std::uint64_t>(1, positions / batch);
}

// The pools that the ranks of a stream draw from. A rank's pools are congruent to it modulo
// gcd(world_size, pools), and so are the positions drawn from them, its own and other ranks'. Pools
// and positions are visited in strides of that number; only some residues are touched.
class TouchedPools {
 public:
  TouchedPools(const OrderOptions& job, std::uint64_t pools)
      : pools_(pools), stride_(std::gcd(std::uint64_t{job.world_size}, pools)) {
    residues_.resize(std::min<std::uint64_t>(job.ranks, stride_));
    for (std::size_t i = 0; i < residues_.size(); ++i) residues_[i] = (job.rank + i) % stride_;
    std::ranges::sort(residues_);
  }

  [[nodiscard]] std::uint64_t count() const { return Below(pools_); }
  // The number of the pool at `index`; pools are sorted by number.
  [[nodiscard]] std::uint64_t Number(std::size_t index) const {
    return index / residues_.size() * stride_ + residues_[index % residues_.size()];
  }
  [[nodiscard]] bool Contains(std::uint64_t position) const {
    return std::ranges::binary_search(residues_, position % stride_);
  }
  // Touched positions, or pools, below this one.
  [[nodiscard]] std::uint64_t Below(std::uint64_t position) const {
    const auto found = std::ranges::lower_bound(residues_, position % stride_);
    return position / stride_ * residues_.size() +
           static_cast<std::uint64_t>(found - residues_.begin());
  }

  // For each touched position of a row the stream's rank that it goes to; job.ranks or more: none
  // of them.
  [[nodiscard]] std::vector<std::uint32_t> LanesOfARow(const OrderOptions& job) const {
    std::vector<std::uint32_t> lanes;
    lanes.reserve(Below(job.world_size));
    for (std::uint64_t base = 0; base < job.world_size; base += stride_) {
      for (const std::uint64_t residue : residues_) {
        lanes.push_back(static_cast<std::uint32_t>(base + residue) - job.rank);
      }
    }
    return lanes;
  }

 private:
  std::uint64_t pools_;
  std::uint64_t stride_;
  std::vector<std::uint64_t> residues_;  // ascending
};

class EpochOrder final : public Order {
 public:
  EpochOrder(const EpochOrderOptions& options, std::uint64_t steps_per_epoch, Position start)
      : job_(options.job),
        pools_total_(options.pools),
        steps_per_epoch_(steps_per_epoch),
        delivered_(Delivered(options.job, steps_per_epoch)),
        touched_(options.job, options.pools),
        lanes_(touched_.LanesOfARow(options.job)),
        plan_(PoolOptions(options, delivered_)),
        steps_until_due_(StepsUntilDue(plan_.options().delay * options.pools, options.job)),
        next_(start) {}

  std::optional<Step> Next() override {
    if (next_.epoch >= job_.epochs) return std::nullopt;
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    if (pools_.empty()) Enter(&step);
    Draw(&step);
    // A read issued that long ago is due: within its own epoch it would have joined by now.
    issued_by_step_.push_back(reads_);
    if (issued_by_step_.size() > steps_until_due_) {
      step.reads_due = issued_by_step_.front();
      issued_by_step_.pop_front();
    }
    if (step.ends_epoch) {
      next_ = {.epoch = next_.epoch + 1, .step = 0};
      if (next_.epoch < job_.epochs) {
        for (EpochPool& pool : pools_) pool.BeginNextEpoch();
      }
    } else {
      ++next_.step;
    }
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::uint64_t early_joins = 0;
    for (const EpochPool& pool : pools_) early_joins += pool.early_joins();
    return {{"blocks_read", static_cast<double>(blocks_read_)},
            {"samples_read", static_cast<double>(samples_read_)},
            {"blocks_read_again", static_cast<double>(blocks_read_again_)},
            {"samples_read_again", static_cast<double>(samples_read_again_)},
            {"early_joins", static_cast<double>(early_joins - early_joins_replayed_)},
            {"resident_units_peak", static_cast<double>(resident_peak_)}};
  }

 private:
  void Count(const BlockRead& read) {
    if (read.again) {
      ++blocks_read_again_;
      samples_read_again_ += read.kept.empty() ? read.count : read.kept.size();
    } else {
      ++blocks_read_;
      samples_read_ += read.count;
    }
  }

  // Makes the pools as they are before next_, and adds reads of what is resident then to the step.
  void Enter(Step* step) {
    const std::uint64_t begin = next_.step * GlobalBatch(job_);
    struct Read {
      EpochPool::Resident resident;
      std::size_t pool;
    };
    std::vector<Read> reads;
    pools_.reserve(touched_.count());
    for (std::size_t i = 0; i < touched_.count(); ++i) {
      const std::uint64_t number = touched_.Number(i);
      EpochPool& pool = pools_.emplace_back(&plan_, number, next_.epoch, job_.epochs);
      const std::uint64_t draws = begin / pools_total_ + (number < begin % pools_total_ ? 1 : 0);
      const auto issue = [&pool] {
        while (pool.CanIssue()) pool.Issue(0);
      };
      issue();
      for (std::uint64_t draw = 0; draw < draws; ++draw) {
        issue();
        pool.Draw();
      }
      const std::uint64_t again = next_.step == 0 ? 0 : pool.issued();
      issue();
      early_joins_replayed_ += pool.early_joins();
      resident_ += pool.resident_units();
      for (EpochPool::Resident& resident : pool.Residents()) {
        resident.read.again = resident.ordinal < again;
        reads.push_back({.resident = std::move(resident), .pool = pools_.size() - 1});
      }
    }
    resident_peak_ = resident_;
    // Reads are sorted by when they join, over all pools. Stable: keeps each pool's order of issue.
    std::ranges::stable_sort(reads, {}, [](const Read& read) {
      return std::tuple(!read.resident.read.again, read.resident.join, read.pool);
    });
    for (Read& read : reads) {
      pools_[read.pool].SetNumber(read.resident.piece, reads_);
      read.resident.read.number = reads_++;
      Count(read.resident.read);
      step->reads.push_back(std::move(read.resident.read));
    }
  }

  void Draw(Step* step) {
    const std::uint64_t begin = next_.step * GlobalBatch(job_);
    const std::uint64_t rows = RowsOfStep(job_, next_.step);
    const std::uint64_t end = std::min(begin + rows * job_.world_size, delivered_);
    const bool pads = begin + rows * job_.world_size > delivered_;
    const std::uint64_t drawn_before = touched_.Below(begin);
    const std::uint64_t draws = touched_.Below(end) - drawn_before;
    step->deliveries.resize(rows * job_.ranks);
    step->releases.reserve(draws > step->deliveries.size() ? draws - step->deliveries.size() : 0);
    std::vector<SampleId> drawn_here;  // only for steps that pad
    if (pads) drawn_here.reserve(draws);
    std::size_t at = drawn_before % pools_.size();
    Delivery* const to = step->deliveries.data();
    const std::span<const std::uint32_t> lanes = lanes_;
    const std::uint32_t first_rank = job_.rank;
    const std::uint32_t ranks = job_.ranks;
    std::size_t turn = 0;
    std::uint32_t row = 0;
    for (std::uint64_t left = draws; left > 0;) {
      const std::size_t together = std::min({left, kDrawnTogether, pools_.size() - at});
      const std::span<EpochPool> pools(&pools_[at], together);
      for (EpochPool& pool : pools) {
        while (pool.CanIssue()) Issue(&pool, step);
        pool.Choose();
      }
      for (EpochPool& pool : pools) pool.Locate();
      for (EpochPool& pool : pools) {
        const EpochPool::Drawn drawn = pool.Take();
        resident_ -= drawn.units;
        const std::uint32_t lane = lanes[turn];
        if (lane < ranks) {
          to[lane * rows + row] = {.sample = drawn.sample,
                                   .rank = first_rank + lane,
                                   .slot = row,
                                   .block_read = drawn.block_read};
        } else {
          step->releases.push_back({.block_read = drawn.block_read, .sample = drawn.sample});
        }
        if (++turn == lanes.size()) {
          turn = 0;
          ++row;
        }
        if (pads) drawn_here.push_back(drawn.sample);
      }
      at = at + together == pools_.size() ? 0 : at + together;
      left -= together;
    }
    const std::uint64_t padded = pads ? Pad(drawn_here, rows, step) : 0;
    HEADRACE_CHECK(draws - step->releases.size() + padded == step->deliveries.size());
  }

  // Fills the rows past the last sample with the batch's own samples, from its first on, and
  // returns how many. At most one a rank: the number of rows is what the rank with the most samples
  // needs.
  std::uint64_t Pad(std::span<const SampleId> drawn_here, std::uint64_t rows, Step* step) {
    const std::uint64_t begin = next_.step * GlobalBatch(job_);
    const std::uint64_t last_row = begin + (rows - 1) * job_.world_size;
    std::uint64_t padded = 0;
    for (std::uint32_t lane = 0; lane < job_.ranks; ++lane) {
      const std::uint64_t g = last_row + job_.rank + lane;
      if (g < delivered_) continue;
      const std::uint64_t source = begin + (g - delivered_) % (delivered_ - begin);
      step->deliveries[lane * rows + rows - 1] = {
          .sample = touched_.Contains(source)
                        ? drawn_here[touched_.Below(source) - touched_.Below(begin)]
                        : SampleAt(source),
          .rank = job_.rank + lane,
          .slot = static_cast<std::uint32_t>(rows - 1)};
      ++padded;
    }
    return padded;
  }

  void Issue(EpochPool* pool, Step* step) {
    resident_ -= pool->resident_units();
    step->reads.push_back(pool->Issue(reads_++));
    resident_ += pool->resident_units();
    resident_peak_ = std::max(resident_peak_, resident_);
    Count(step->reads.back());
  }

  // The sample at a position of a pool that is not this stream's.
  SampleId SampleAt(std::uint64_t position) {
    EpochPool pool(&plan_, position % pools_total_, next_.epoch, next_.epoch + 1);
    for (std::uint64_t i = 0;; ++i) {
      while (pool.CanIssue()) pool.Issue(0);
      const EpochPool::Drawn drawn = pool.Draw();
      if (i == position / pools_total_) return drawn.sample;
    }
  }

  const OrderOptions job_;
  const std::uint64_t pools_total_;
  const std::uint64_t steps_per_epoch_;
  const std::uint64_t delivered_;
  const TouchedPools touched_;
  const std::vector<std::uint32_t> lanes_;
  EpochPoolPlan plan_;
  const std::uint64_t steps_until_due_;
  Position next_;
  std::vector<EpochPool> pools_;  // those that are touched, by number; empty: not entered yet
  std::uint64_t reads_ = 0;
  std::deque<std::uint64_t> issued_by_step_;  // number of reads issued up to each of the last steps

  std::uint64_t resident_ = 0;  // units
  std::uint64_t resident_peak_ = 0;
  std::uint64_t blocks_read_ = 0;
  std::uint64_t samples_read_ = 0;
  std::uint64_t blocks_read_again_ = 0;
  std::uint64_t samples_read_again_ = 0;
  std::uint64_t early_joins_replayed_ = 0;
};

class Factory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "epoch"; }
  [[nodiscard]] bool reads_blocks() const override { return true; }
  [[nodiscard]] std::string_view budget_parameter() const override { return "pool_bytes"; }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    HEADRACE_ASSIGN_OR_RETURN(Resolved resolved, Read(request));
    return std::move(resolved.parameters);
  }

  [[nodiscard]] Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const override {
    HEADRACE_ASSIGN_OR_RETURN(const Resolved resolved, Read(request));
    const std::uint32_t pools = resolved.options.pools;
    const std::uint64_t touched = TouchedPools(request.job, pools).count();
    // Of two epochs at most: the one that is drawn from and the one that fills meanwhile.
    return std::min(touched * (resolved.options.pool_units / pools),
                    2 * request.blocks->total_units());
  }

  [[nodiscard]] std::optional<BatchSharing> ExpectedSharing(
      const OrderRequest& resolved) const override {
    if (resolved.blocks == nullptr) return std::nullopt;
    return EpochBatchSharing(resolved);
  }

  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                    Position start) const override {
    HEADRACE_ASSIGN_OR_RETURN(const Resolved resolved, Read(request));
    return MakeEpochOrder(resolved.options, start);
  }

 private:
  struct Resolved {
    OrderParameters parameters;
    EpochOrderOptions options;
  };

  [[nodiscard]] Result<Resolved> Read(const OrderRequest& request) const {
    HEADRACE_RETURN_IF_ERROR(CheckInputs(request.job, request.blocks.get()));
    const BlockMap& blocks = *request.blocks;
    const std::uint64_t unit = blocks.unit_bytes();
    // Defaults depend on the given parameters: check these first.
    ParameterReader reader(name(), request.parameters);
    const auto is_given = [&request](std::string_view name) {
      return request.parameters.contains(name);
    };
    const auto read = [&reader](std::string_view name, std::uint64_t default_value,
                                std::int64_t least, std::int64_t most) {
      return static_cast<std::uint64_t>(
          reader.Integer(name, static_cast<std::int64_t>(default_value), least, most));
    };
    EpochGiven given{.rank_units = request.rank_units};
    given.join_permille =
        static_cast<std::uint32_t>(read("join_permille", given.join_permille, 0, kJoinPermilleMax));
    if (is_given("pool_bytes")) given.pool_units = read("pool_bytes", 1, 1, kPoolBytesMax) / unit;
    if (is_given("pools")) given.pools = read("pools", 1, 1, kPoolsMax);
    if (is_given("first_fill_permille")) {
      given.first_fill_permille =
          static_cast<std::uint32_t>(read("first_fill_permille", 0, 0, kPermille));
    }
    if (is_given("first_join_permille")) {
      given.first_join_permille =
          static_cast<std::uint32_t>(read("first_join_permille", 0, 0, kPermille));
    }
    const EpochParameters filled = FillEpochParameters(request.job, blocks, given);
    EpochOrderOptions options{.job = request.job, .blocks = request.blocks};
    options.job.bijection_from = reader.BijectionFrom();
    options.pool_units = read("pool_bytes",
                              static_cast<std::uint64_t>(std::min<Uint128>(
                                  Uint128{filled.pool_units} * unit, kPoolBytesMax)),
                              1, kPoolBytesMax) /
                         unit;
    options.pools = static_cast<std::uint32_t>(read("pools", filled.pools, 1, kPoolsMax));
    options.join_permille = filled.join_permille;
    options.first_fill_permille = static_cast<std::uint32_t>(
        read("first_fill_permille", filled.first_fill_permille, 0, kPermille));
    options.first_join_permille = static_cast<std::uint32_t>(
        read("first_join_permille", filled.first_join_permille, 0, kPermille));
    HEADRACE_ASSIGN_OR_RETURN(OrderParameters parameters, reader.Finish());
    HEADRACE_RETURN_IF_ERROR(CheckPools(options));
    return Resolved{.parameters = std::move(parameters), .options = std::move(options)};
  }
};

}  // namespace

Result<std::unique_ptr<Order>> MakeEpochOrder(const EpochOrderOptions& options, Position start) {
  HEADRACE_RETURN_IF_ERROR(CheckInputs(options.job, options.blocks.get()));
  HEADRACE_RETURN_IF_ERROR(CheckPools(options));
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(options.job));
  HEADRACE_RETURN_IF_ERROR(CheckStart(options.job, steps, start));
  return std::unique_ptr<Order>(std::make_unique<EpochOrder>(options, steps, start));
}

const OrderFactory& EpochOrderFactory() {
  static const Factory factory;
  return factory;
}

}  // namespace headrace
