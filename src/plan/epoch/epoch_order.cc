#include "plan/epoch/epoch_order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/epoch/epoch_homes.h"
#include "plan/epoch/epoch_homes_order.h"
#include "plan/epoch/epoch_parameters.h"
#include "plan/epoch/epoch_pool.h"
#include "plan/epoch/epoch_sharing.h"
#include "plan/epoch/epoch_steps.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr std::int64_t kPoolsMax = 0xffff'ffff;
constexpr std::int64_t kHomesMax = 4096;
constexpr std::size_t kPoolsTogether = 48;  // pools whose cache misses overlap

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
        steps_(options.job, steps_per_epoch, start),
        touched_(options.job, options.pools),
        lanes_(touched_.LanesOfARow(options.job)),
        plan_(EpochPoolOptions(options, 0, steps_.delivered())),
        due_(plan_.options().delay * options.pools, options.job) {}

  std::optional<Step> Next() override {
    if (steps_.done()) return std::nullopt;
    Step step = steps_.Begin();
    if (pools_.empty()) Enter(&step);
    Draw(&step);
    step.reads_due = due_.Next(reads_);
    if (steps_.Advance()) {
      for (EpochPool& pool : pools_) pool.BeginNextEpoch();
    }
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::uint64_t early_joins = 0;
    for (const EpochPool& pool : pools_) early_joins += pool.early_joins();
    return counts_.counters(early_joins, resident_peak_);
  }

 private:
  // Makes the pools as they are before the next step, and adds reads of what is resident then to
  // the step.
  void Enter(Step* step) {
    const std::uint64_t begin = steps_.begin();
    EnteredPools entered;
    pools_.reserve(touched_.count());
    for (std::size_t i = 0; i < touched_.count(); ++i) {
      const std::uint64_t number = touched_.Number(i);
      EpochPool& pool = pools_.emplace_back(&plan_, number, steps_.next().epoch, job_.epochs);
      const std::uint64_t draws = begin / pools_total_ + (number < begin % pools_total_ ? 1 : 0);
      counts_.AddReplayed(entered.Enter(&pool, draws, steps_.next().step == 0));
      resident_ += pool.resident_units();
    }
    resident_peak_ = resident_;
    step->reads = entered.Reads(&reads_);
    for (const BlockRead& read : step->reads) counts_.Add(read);
  }

  void Draw(Step* step) {
    const auto [begin, end, rows, pads] = steps_.positions();
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
      const std::size_t together = std::min({left, kPoolsTogether, pools_.size() - at});
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
    const std::uint64_t begin = steps_.begin();
    const std::uint64_t delivered = steps_.delivered();
    const std::uint64_t last_row = begin + (rows - 1) * job_.world_size;
    std::uint64_t padded = 0;
    for (std::uint32_t lane = 0; lane < job_.ranks; ++lane) {
      const std::uint64_t g = last_row + job_.rank + lane;
      if (g < delivered) continue;
      const std::uint64_t source = begin + (g - delivered) % (delivered - begin);
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
    counts_.Add(step->reads.back());
  }

  // The sample at a position of a pool that is not this stream's.
  SampleId SampleAt(std::uint64_t position) {
    const std::uint64_t epoch = steps_.next().epoch;
    EpochPool pool(&plan_, position % pools_total_, epoch, epoch + 1);
    for (std::uint64_t i = 0;; ++i) {
      while (pool.CanIssue()) pool.Issue(0);
      const EpochPool::Drawn drawn = pool.Draw();
      if (i == position / pools_total_) return drawn.sample;
    }
  }

  const OrderOptions job_;
  const std::uint64_t pools_total_;
  EpochSteps steps_;
  const TouchedPools touched_;
  const std::vector<std::uint32_t> lanes_;
  EpochPoolPlan plan_;
  DueReads due_;
  std::vector<EpochPool> pools_;  // those that are touched, by number; empty: not entered yet
  std::uint64_t reads_ = 0;
  std::uint64_t resident_ = 0;  // units
  std::uint64_t resident_peak_ = 0;
  EpochReadCounts counts_;
};

class EpochFactory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "epoch"; }
  [[nodiscard]] bool reads_blocks() const override { return true; }
  [[nodiscard]] std::uint32_t exchanging_nodes(const OrderParameters& given) const override {
    return GivenCount(given, "homes", 1);
  }
  [[nodiscard]] std::string_view budget_parameter() const override { return "pool_bytes"; }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    HEADRACE_ASSIGN_OR_RETURN(Resolved resolved, Read(request));
    return std::move(resolved.parameters);
  }

  [[nodiscard]] Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const override {
    HEADRACE_ASSIGN_OR_RETURN(const Resolved resolved, Read(request));
    const std::uint32_t pools = resolved.options.pools;
    const bool homes = resolved.options.home_count() > 1;
    const std::uint64_t touched =
        homes ? EpochHomesOrderPools(resolved.options) : TouchedPools(request.job, pools).count();
    // Of two epochs at most: the one that is drawn from and the one that fills meanwhile.
    const std::uint64_t in_pools = std::min(touched * (resolved.options.pool_units / pools),
                                            2 * request.blocks->total_units());
    return in_pools + (homes ? EpochHomesOrderParcels(resolved.options) : 0);
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
    HEADRACE_RETURN_IF_ERROR(CheckEpochInputs(request.job, request.blocks.get()));
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
    const auto homes = static_cast<std::uint32_t>(read("homes", 1, 1, kHomesMax));
    reader.Computed("home_table", TableHash(request.homes));
    EpochGiven given{.rank_units = request.rank_units};
    HEADRACE_ASSIGN_OR_RETURN(given.homes, EpochHomes::Make(blocks, homes, request.homes));
    given.join_permille = static_cast<std::uint32_t>(
        read("join_permille", given.join_permille, 0, kEpochJoinPermilleMax));
    if (is_given("pool_bytes"))
      given.pool_units = read("pool_bytes", 1, 1, kEpochPoolBytesMax) / unit;
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
    EpochOrderOptions options{
        .job = request.job, .blocks = request.blocks, .homes = std::move(given.homes)};
    options.job.bijection_from = reader.BijectionFrom();
    options.pool_units = read("pool_bytes",
                              static_cast<std::uint64_t>(std::min<Uint128>(
                                  Uint128{filled.pool_units} * unit, kEpochPoolBytesMax)),
                              1, kEpochPoolBytesMax) /
                         unit;
    options.pools = static_cast<std::uint32_t>(read("pools", filled.pools, 1, kPoolsMax));
    options.join_permille = filled.join_permille;
    options.first_fill_permille = static_cast<std::uint32_t>(
        read("first_fill_permille", filled.first_fill_permille, 0, kPermille));
    options.first_join_permille = static_cast<std::uint32_t>(
        read("first_join_permille", filled.first_join_permille, 0, kPermille));
    HEADRACE_ASSIGN_OR_RETURN(OrderParameters parameters, reader.Finish());
    HEADRACE_RETURN_IF_ERROR(CheckEpochPools(options));
    return Resolved{.parameters = std::move(parameters), .options = std::move(options)};
  }
};

}  // namespace

Result<std::unique_ptr<Order>> MakeEpochOrder(const EpochOrderOptions& options, Position start) {
  HEADRACE_RETURN_IF_ERROR(CheckEpochInputs(options.job, options.blocks.get()));
  HEADRACE_RETURN_IF_ERROR(CheckEpochPools(options));
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(options.job));
  HEADRACE_RETURN_IF_ERROR(CheckStart(options.job, steps, start));
  if (options.home_count() > 1) return MakeEpochHomesOrder(options, steps, start);
  return std::unique_ptr<Order>(std::make_unique<EpochOrder>(options, steps, start));
}

const OrderFactory& EpochOrderFactory() {
  static const EpochFactory factory;
  return factory;
}

}  // namespace headrace
