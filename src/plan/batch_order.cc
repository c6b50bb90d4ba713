#include "plan/batch_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "base/units.h"
#include "plan/order_factory.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr std::uint64_t kBatchSamplesMax = std::uint64_t{1} << 28;
constexpr std::uint32_t kRanksPerNodeMax = std::uint32_t{1} << 20;

// Finds the least of some numbers, the first of equal ones: a tournament tree. It does not branch
// on the numbers, which would be unpredictable.
class LeastTree {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};  // the least only if all have it

  void Reset(std::size_t count, std::uint64_t value) {
    leaves_ = std::bit_ceil(count);
    values_.assign(2 * leaves_, kNever);
    at_.resize(2 * leaves_);
    for (std::size_t i = 0; i < leaves_; ++i) at_[leaves_ + i] = static_cast<std::uint32_t>(i);
    std::fill_n(values_.begin() + static_cast<std::ptrdiff_t>(leaves_), count, value);
    for (std::size_t i = leaves_ - 1; i >= 1; --i) Play(i);
  }

  void Set(std::size_t at, std::uint64_t value) {
    values_[leaves_ + at] = value;
    for (std::size_t i = (leaves_ + at) / 2; i >= 1; i /= 2) Play(i);
  }

  [[nodiscard]] std::uint32_t least() const { return at_[1]; }
  [[nodiscard]] std::uint64_t value() const { return values_[1]; }

 private:
  void Play(std::size_t i) {
    const std::size_t winner =
        2 * i + static_cast<std::size_t>(values_[2 * i + 1] < values_[2 * i]);
    values_[i] = values_[winner];
    at_[i] = at_[winner];
  }

  // 1 is the root, the children of i are 2 i and 2 i + 1, the numbers are the last leaves_ entries.
  std::size_t leaves_ = 1;
  std::vector<std::uint64_t> values_;
  std::vector<std::uint32_t> at_;
};

// Sorts positions of a batch by cost, highest first, and equal costs by position: a radix sort from
// the last byte, which is stable.
class CostSorter {
 public:
  // Sorts positions 0, 1, ... with these costs. The span is valid until the next call.
  std::span<const std::uint32_t> Sort(std::span<const std::uint32_t> costs) {
    entries_.resize(costs.size());
    other_.resize(costs.size());
    counts_ = {};
    for (std::size_t i = 0; i < costs.size(); ++i) {
      const std::uint32_t key = ~costs[i];
      entries_[i] = {key, static_cast<std::uint32_t>(i)};
      for (std::size_t byte = 0; byte < 4; ++byte) ++counts_[byte][Digit(key, byte)];
    }
    for (std::size_t byte = 0; byte < 4; ++byte) {
      std::array<std::uint32_t, 256>& counts = counts_[byte];
      if (counts[Digit(~costs[0], byte)] == costs.size()) continue;  // all have the same digit
      std::uint32_t sum = 0;
      for (std::uint32_t& count : counts) sum += std::exchange(count, sum);
      for (const Entry& entry : entries_) other_[counts[Digit(entry.key, byte)]++] = entry;
      entries_.swap(other_);
    }
    order_.resize(costs.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = entries_[i].position;
    return order_;
  }

 private:
  struct Entry {
    std::uint32_t key = 0;
    std::uint32_t position = 0;
  };

  static std::size_t Digit(std::uint32_t key, std::size_t byte) { return key >> 8 * byte & 0xff; }

  std::vector<Entry> entries_;
  std::vector<Entry> other_;
  std::array<std::array<std::uint32_t, 256>, 4> counts_{};
  std::vector<std::uint32_t> order_;
};

// Assigns the samples of one global batch to the ranks. Reuses its memory from batch to batch.
class Dealer {
 public:
  // With homes, each node has ranks_per_node ranks; without, all ranks are on one node.
  Dealer(std::uint32_t world_size, std::optional<std::uint32_t> ranks_per_node)
      : world_size_(world_size), ranks_per_node_(ranks_per_node.value_or(world_size)) {
    const std::uint32_t nodes = (world_size_ - 1) / ranks_per_node_ + 1;
    ranks_.resize(nodes);
    room_.resize(nodes);
  }

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(ranks_.size()); }

  // Assigns each of `costs.size()` samples to a rank, `rows` samples to each. `homes` is empty or
  // has k numbers for each sample.
  std::span<const std::uint32_t> Deal(std::uint64_t rows, std::span<const std::uint32_t> costs,
                                      std::span<const std::uint32_t> homes) {
    for (std::uint32_t node = 0; node < nodes(); ++node) room_[node] = rows * RanksOf(node);
    const std::span<const std::uint32_t> by_cost = sorter_.Sort(costs);
    SendHome(by_cost, homes);
    Level(rows, by_cost, costs);
    return rank_of_;
  }

  // Samples of the last batch at home.
  [[nodiscard]] std::uint64_t at_home() const { return at_home_; }
  [[nodiscard]] std::uint64_t cost_max() const { return cost_max_; }

 private:
  static constexpr std::uint32_t kAnyNode = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] std::uint32_t RanksOf(std::uint32_t node) const {
    return std::min(ranks_per_node_, world_size_ - node * ranks_per_node_);
  }

  // Fills node_of_, and leaves in room_ the rows that homes do not take. Samples with the fewest
  // homes choose first, as others have alternatives; among these the costliest first.
  void SendHome(std::span<const std::uint32_t> by_cost, std::span<const std::uint32_t> homes) {
    node_of_.assign(by_cost.size(), kAnyNode);
    at_home_ = 0;
    if (homes.empty()) return;
    const std::size_t each = homes.size() / by_cost.size();
    const auto homes_of = [&](std::uint32_t at) { return homes.subspan(at * each, each); };
    if (each == 1) {
      for (const std::uint32_t at : by_cost) SendHome(at, homes_of(at));
      return;
    }
    const auto homes_that_are = [&](std::uint32_t at) {
      std::size_t count = 0;
      for (const std::uint32_t home : homes_of(at)) count += home < nodes() ? 1 : 0;
      return count;
    };
    std::array<std::uint32_t, kHomesMax + 2> ends{};
    for (const std::uint32_t at : by_cost) ++ends[homes_that_are(at) + 1];
    for (std::size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
    choosers_.resize(by_cost.size());
    for (const std::uint32_t at : by_cost) choosers_[ends[homes_that_are(at)]++] = at;
    for (const std::uint32_t at : choosers_) SendHome(at, homes_of(at));
  }

  // To the home with the most room, the lowest of equal ones; nowhere if none has room.
  void SendHome(std::uint32_t at, std::span<const std::uint32_t> homes) {
    std::uint64_t best = 0;  // room, then the inverted node number
    for (const std::uint32_t home : homes) {
      const std::uint64_t room = home < nodes() ? room_[home] : 0;
      best = std::max(best, room << 32 | static_cast<std::uint32_t>(~home));
    }
    if (best >> 32 == 0) return;
    const std::uint32_t node = ~static_cast<std::uint32_t>(best);
    node_of_[at] = node;
    --room_[node];
    ++at_home_;
  }

  // Fills rank_of_: gives the next costliest sample to the cheapest rank that may take it. A sample
  // that may go anywhere does not take a row reserved for a home.
  void Level(std::uint64_t rows, std::span<const std::uint32_t> by_cost,
             std::span<const std::uint32_t> costs) {
    StartRanks(rows);
    rank_of_.resize(by_cost.size());
    cost_max_ = 0;
    std::uint64_t anywhere = by_cost.size() - at_home_;
    for (const std::uint32_t at : by_cost) {
      std::uint32_t node = node_of_[at];
      if (node == kAnyNode) {
        node = open_nodes_.least();
        --room_[node];
        --anywhere;
      }
      LeastTree& ranks = ranks_[node];
      const std::uint32_t in_node = ranks.least();
      const std::uint32_t rank = node * ranks_per_node_ + in_node;
      const std::uint64_t cost = ranks.value() + costs[at];
      cost_max_ = std::max(cost_max_, cost);
      ranks.Set(in_node, --rows_left_[rank] == 0 ? LeastTree::kNever : cost);
      rank_of_[at] = rank;
      if (anywhere != 0) {
        open_nodes_.Set(node, room_[node] == 0 ? LeastTree::kNever : ranks.value());
      }
    }
  }

  void StartRanks(std::uint64_t rows) {
    rows_left_.assign(world_size_, rows);
    for (std::uint32_t node = 0; node < nodes(); ++node) ranks_[node].Reset(RanksOf(node), 0);
    open_nodes_.Reset(nodes(), 0);
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      if (room_[node] == 0) open_nodes_.Set(node, LeastTree::kNever);
    }
  }

  const std::uint32_t world_size_;
  const std::uint32_t ranks_per_node_;
  CostSorter sorter_;
  std::vector<std::uint64_t> room_;       // rows of each node that are not reserved
  std::vector<std::uint32_t> choosers_;   // samples by the number of their homes, then by cost
  std::vector<std::uint32_t> node_of_;    // of each sample; kAnyNode
  std::vector<std::uint64_t> rows_left_;  // of each rank
  std::vector<LeastTree> ranks_;          // of each node, by cost
  LeastTree open_nodes_;                  // nodes with room, by the cost of their cheapest rank
  std::vector<std::uint32_t> rank_of_;    // of each sample
  std::uint64_t at_home_ = 0;
  std::uint64_t cost_max_ = 0;
};

class BatchOrder final : public Order {
 public:
  BatchOrder(const BatchOrderOptions& options, std::uint64_t steps_per_epoch, Position start)
      : job_(options.job),
        homes_(options.homes),
        costs_(options.costs),
        homes_each_(homes_ ? homes_->size() / job_.sample_count : 0),
        steps_per_epoch_(steps_per_epoch),
        dealer_(job_.world_size,
                homes_ ? std::optional(options.ranks_per_node) : std::optional<std::uint32_t>()),
        next_(start) {}

  std::optional<Step> Next() override {
    if (next_.epoch >= job_.epochs) return std::nullopt;
    EnterEpoch(next_.epoch);
    const std::uint64_t rows = RowsOfStep(job_, next_.step);
    Gather(rows);
    const std::span<const std::uint32_t> ranks = dealer_.Deal(rows, batch_costs_, batch_homes_);
    Step step;
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    step.deliveries.resize(rows * job_.ranks);
    slots_.assign(job_.ranks, 0);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::uint32_t lane = ranks[i] - job_.rank;  // Wraps around for lower ranks.
      if (lane >= job_.ranks) continue;
      const std::uint32_t slot = slots_[lane]++;
      step.deliveries[lane * rows + slot] = {.sample = samples_[i], .rank = ranks[i], .slot = slot};
    }
    Count();
    if (++next_.step == steps_per_epoch_) next_ = {.epoch = next_.epoch + 1, .step = 0};
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::map<std::string, double> all = {{"samples", static_cast<double>(samples_planned_)},
                                         {"cost_max", cost_max_},
                                         {"cost_mean", cost_mean_}};
    if (homes_) all.emplace("at_home", static_cast<double>(at_home_));
    return all;
  }

 private:
  void EnterEpoch(std::uint64_t epoch) {
    if (!job_.shuffle || epoch_ == epoch) return;
    permutation_.reset();  // Freed before the next one is made: one table at a time.
    permutation_.emplace(job_.sample_count, job_.seed, epoch, RandomStream::kOrder,
                         job_.bijection_from);
    epoch_ = epoch;
  }

  // Collects the samples of the next global batch with their costs and homes. Wraps around at the
  // end of the epoch.
  void Gather(std::uint64_t rows) {
    const std::uint64_t first = next_.step * job_.batch_size * job_.world_size;
    const std::uint64_t size = rows * job_.world_size;
    const std::uint64_t own = std::min(size, job_.sample_count - first);
    samples_.resize(size);
    for (std::uint64_t i = 0; i < own; ++i) {
      samples_[i] = SampleId{job_.shuffle ? permutation_->At(first + i) : first + i};
    }
    for (std::uint64_t i = own; i < size; ++i) samples_[i] = samples_[i - own];
    batch_costs_.resize(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      batch_costs_[i] = costs_ ? (*costs_)[Raw(samples_[i])] : 1;
    }
    batch_homes_.resize(size * homes_each_);
    for (std::uint64_t i = 0, to = 0; i < size; ++i) {
      const std::uint64_t from = Raw(samples_[i]) * homes_each_;
      for (std::uint64_t j = 0; j < homes_each_; ++j) batch_homes_[to++] = (*homes_)[from + j];
    }
  }

  void Count() {
    samples_planned_ += samples_.size();
    at_home_ += dealer_.at_home();
    std::uint64_t sum = 0;
    for (const std::uint32_t cost : batch_costs_) sum += cost;
    cost_mean_ += static_cast<double>(sum) / job_.world_size;
    cost_max_ += static_cast<double>(dealer_.cost_max());
  }

  const OrderOptions job_;
  const SampleTable homes_;
  const SampleTable costs_;
  const std::uint64_t homes_each_;
  const std::uint64_t steps_per_epoch_;
  Dealer dealer_;
  Position next_;
  std::optional<Permutation> permutation_;
  std::optional<std::uint64_t> epoch_;  // the epoch of permutation_
  // The global batch, by position.
  std::vector<SampleId> samples_;
  std::vector<std::uint32_t> batch_costs_;
  std::vector<std::uint32_t> batch_homes_;  // homes_each_ numbers a sample
  std::vector<std::uint32_t> slots_;        // rows filled so far, of each of the stream's ranks
  // Counters.
  std::uint64_t samples_planned_ = 0;
  std::uint64_t at_home_ = 0;
  double cost_max_ = 0;
  double cost_mean_ = 0;
};

Status CheckTables(const BatchOrderOptions& options) {
  const std::uint64_t samples = options.job.sample_count;
  if (options.costs && options.costs->size() != samples) {
    return InvalidArgument("costs of order batch: got {} numbers, must be one for each of {}",
                           options.costs->size(), Counted(samples, "sample"));
  }
  if (!options.homes) return Status();
  const std::uint64_t homes = options.homes->size();
  if (homes % samples != 0 || homes / samples < 1 || homes / samples > kHomesMax) {
    return InvalidArgument(
        "homes of order batch: got {} numbers, must be the same number, 1 to {}, for each of {}",
        homes, kHomesMax, Counted(samples, "sample"));
  }
  const std::uint32_t nodes = (options.job.world_size - 1) / options.ranks_per_node + 1;
  if (std::ranges::none_of(*options.homes, [&](std::uint32_t home) { return home < nodes; })) {
    return InvalidArgument(
        "homes of order batch: no home is a node; {}, {} a node, must have one below {}",
        Counted(options.job.world_size, "rank"), options.ranks_per_node, nodes);
  }
  return Status();
}

Status Check(const BatchOrderOptions& options) {
  HEADRACE_RETURN_IF_ERROR(StepsPerEpoch(options.job).status());
  if (options.ranks_per_node < 1 || options.ranks_per_node > kRanksPerNodeMax) {
    return InvalidArgument("ranks_per_node of order batch: got {}, must be in [1, {}]",
                           options.ranks_per_node, kRanksPerNodeMax);
  }
  const std::uint64_t global_batch = RowsOfStep(options.job, 0) * options.job.world_size;
  if (global_batch > kBatchSamplesMax) {
    return InvalidArgument(
        "batch_size {} x world_size {} with order batch: every rank plans the whole global batch, "
        "which may have {} at most; use order 'exact'",
        options.job.batch_size, options.job.world_size, Counted(kBatchSamplesMax, "sample"));
  }
  return CheckTables(options);
}

class BatchFactory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "batch"; }
  [[nodiscard]] bool reads_blocks() const override { return false; }
  [[nodiscard]] bool takes_costs() const override { return true; }
  [[nodiscard]] std::optional<BatchSharing> ExpectedSharing(
      const OrderRequest& /*resolved*/) const override {
    return BatchSharing{};  // Samples of a batch are drawn one by one from all.
  }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    ParameterReader reader(name(), request.parameters);
    const BatchOrderOptions options = Read(request, reader);
    HEADRACE_ASSIGN_OR_RETURN(OrderParameters parameters, reader.Finish());
    HEADRACE_RETURN_IF_ERROR(Check(options));
    return parameters;
  }

  [[nodiscard]] Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const override {
    HEADRACE_RETURN_IF_ERROR(Resolve(request).status());
    return std::uint64_t{0};
  }

  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                    Position start) const override {
    ParameterReader reader(name(), request.parameters);
    const BatchOrderOptions options = Read(request, reader);
    HEADRACE_RETURN_IF_ERROR(reader.Finish().status());
    return MakeBatchOrder(options, start);
  }

 private:
  static BatchOrderOptions Read(const OrderRequest& request, ParameterReader& reader) {
    BatchOrderOptions options{.job = request.job, .homes = request.homes, .costs = request.costs};
    options.job.bijection_from = reader.BijectionFrom();
    options.ranks_per_node =
        static_cast<std::uint32_t>(reader.Integer("ranks_per_node", 1, 1, kRanksPerNodeMax));
    reader.Computed("homes", TableHash(request.homes));
    reader.Computed("costs", TableHash(request.costs));
    return options;
  }
};

}  // namespace

const OrderFactory& BatchOrderFactory() {
  static const BatchFactory factory;
  return factory;
}

Result<std::unique_ptr<Order>> MakeBatchOrder(const BatchOrderOptions& options, Position start) {
  HEADRACE_RETURN_IF_ERROR(Check(options));
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(options.job));
  HEADRACE_RETURN_IF_ERROR(CheckStart(options.job, steps, start));
  return std::unique_ptr<Order>(std::make_unique<BatchOrder>(options, steps, start));
}

}  // namespace headrace
