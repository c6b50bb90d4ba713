#include "plan/epoch/epoch_homes_order.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "plan/epoch/epoch_homes.h"
#include "plan/epoch/epoch_parameters.h"
#include "plan/epoch/epoch_parcels.h"
#include "plan/epoch/epoch_pool.h"
#include "plan/epoch/epoch_steps.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr std::size_t kDrawnTogether = 48;  // pools whose cache misses overlap

// Global positions from a read's issue to its join.
std::uint64_t PositionsUntilJoin(const EpochOrderOptions& options, std::uint64_t delay) {
  const OrderOptions& job = options.job;
  if (!job.exchange) return delay * options.pools;
  const std::uint64_t draws = delay * (options.pools / options.home_count());  // of the home
  return static_cast<std::uint64_t>(Uint128{draws} * job.sample_count /
                                    options.homes->samples()[job.node()]);
}

class EpochHomesOrder final : public Order {
 public:
  EpochHomesOrder(const EpochOrderOptions& options, std::uint64_t steps_per_epoch, Position start)
      : job_(options.job),
        homes_(options.home_count()),
        pools_of_home_(options.pools / homes_),
        steps_(options.job, steps_per_epoch, start),
        turns_(options.homes->samples()),
        plans_(Plans(options, steps_.delivered())),
        due_(PositionsUntilJoin(options, plans_[0].options().delay), options.job),
        parcels_(job_.node(), homes_, ParcelUnits(options)),
        in_group_(homes_) {}

  std::optional<Step> Next() override {
    if (steps_.done()) return std::nullopt;
    Step step = steps_.Begin();
    if (pools_.empty()) Enter(&step);
    Draw(&step);
    step.reads_due = due_.Next(reads_);
    if (steps_.Advance()) {
      for (EpochPool& pool : pools_) pool.BeginNextEpoch();
      turns_.Seek(0);
      FindTurns();
    }
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::uint64_t early_joins = 0;
    for (std::uint32_t home = 0; home < homes_; ++home) {
      if (!ReadsHome(home)) continue;
      for (const EpochPool& pool : PoolsOf(home)) early_joins += pool.early_joins();
    }
    std::map<std::string, double> counters = counts_.counters(early_joins, resident_peak_);
    if (!job_.exchange) return counters;
    const auto add = [&counters](const char* name, const EpochParcels::Counts& counts) {
      counters[std::string("parcels_") + name] = static_cast<double>(counts.parcels);
      counters[std::string("samples_") + name] = static_cast<double>(counts.samples);
      counters[std::string("units_") + name] = static_cast<double>(counts.units);
    };
    add("sent", parcels_.sent());
    add("received", parcels_.received());
    return counters;
  }

 private:
  struct Turn {
    std::uint32_t home;
    EpochPool* pool;
  };
  struct Drawn {
    std::uint32_t home = 0;
    EpochPool::Drawn from;
  };

  static std::deque<EpochPoolPlan> Plans(const EpochOrderOptions& options,
                                         std::uint64_t delivered) {
    HomeTurns turns(options.homes->samples());
    turns.Seek(delivered);
    std::deque<EpochPoolPlan> plans;
    for (std::uint32_t home = 0; home < options.home_count(); ++home) {
      plans.emplace_back(EpochPoolOptions(options, home, turns.taken()[home]));
    }
    return plans;
  }
  static std::uint64_t ParcelUnits(const EpochOrderOptions& options) {
    return options.job.exchange
               ? EpochParcelUnits(options.job, *options.blocks, options.home_count())
               : 0;
  }

  [[nodiscard]] bool ReadsHome(std::uint32_t home) const {
    return !job_.exchange || home == job_.node();
  }
  [[nodiscard]] std::span<const EpochPool> PoolsOf(std::uint32_t home) const {
    return std::span(pools_).subspan(home * pools_of_home_, pools_of_home_);
  }
  [[nodiscard]] std::uint32_t NodeOf(std::uint32_t rank) const { return rank / job_.ranks; }

  // Makes the pools as they are before the next step, and adds reads of what is resident then to
  // the step.
  void Enter(Step* step) {
    turns_.Seek(steps_.begin());
    FindTurns();
    EnteredPools entered;
    pools_.reserve(homes_ * pools_of_home_);
    for (std::uint32_t home = 0; home < homes_; ++home) {
      const std::uint64_t taken = turns_.taken()[home];
      for (std::uint64_t number = 0; number < pools_of_home_; ++number) {
        EpochPool& pool =
            pools_.emplace_back(&plans_[home], number, steps_.next().epoch, job_.epochs);
        const std::uint64_t draws =
            taken / pools_of_home_ + (number < taken % pools_of_home_ ? 1 : 0);
        const bool reads = ReadsHome(home);
        const std::uint64_t early = entered.Enter(&pool, draws, steps_.next().step == 0, reads);
        if (!reads) continue;
        counts_.AddReplayed(early);
        resident_ += pool.resident_units();
      }
    }
    resident_peak_ = resident_;
    step->reads = entered.Reads(&reads_);
    for (const BlockRead& read : step->reads) counts_.Add(read);
  }

  // The pool of each home that the next of its positions is drawn from.
  void FindTurns() {
    next_pool_.resize(homes_);
    for (std::uint32_t home = 0; home < homes_; ++home) {
      next_pool_[home] = turns_.taken()[home] % pools_of_home_;
    }
  }

  void Draw(Step* step) {
    const auto [begin, end, rows, pads] = steps_.positions();
    step->deliveries.resize(rows * job_.ranks);
    places_.resize(end - begin);
    std::iota(places_.begin(), places_.end(), 0U);
    Shuffle(places_, Prng(job_.seed, step->epoch, RandomStream::kDeal, step->step));
    if (pads) at_place_.resize(end - begin);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): NextGroup() fills it.
    std::array<Turn, kDrawnTogether> group;
    for (std::size_t at = 0; at < places_.size();) {
      const std::size_t count = NextGroup(places_.size() - at, group);
      const std::span<const Turn> turns = std::span(group).first(count);
      for (const Turn& turn : turns) {
        Issue(turn, step);
        turn.pool->Choose();
      }
      for (const Turn& turn : turns) turn.pool->Locate();
      for (const Turn& turn : turns) {
        const Drawn drawn{.home = turn.home, .from = turn.pool->Take()};
        const std::uint32_t place = places_[at++];
        if (pads) at_place_[place] = drawn;
        if (ReadsHome(turn.home)) resident_ -= drawn.from.units;
        Place(drawn, place, rows, step);
      }
    }
    parcels_.FlushAll(step, &reads_);
    if (pads) Pad(rows, step);
    resident_peak_ = std::max(resident_peak_, resident_ + parcels_.TakePeak());
    EpochParcels::Sort(step);
  }

  // The next positions, at most `most`, of pools that are all different. Returns how many.
  std::size_t NextGroup(std::size_t most, std::span<Turn> group) {
    most = std::min(most, group.size());
    std::size_t count = 0;
    for (; count < most && in_group_[turns_.home()] < pools_of_home_; ++count) {
      const std::uint32_t home = turns_.home();
      std::uint64_t& pool = next_pool_[home];
      group[count] = {.home = home, .pool = &pools_[home * pools_of_home_ + pool]};
      if (++pool == pools_of_home_) pool = 0;
      ++in_group_[home];
      turns_.Advance();
    }
    for (const Turn& turn : group.first(count)) in_group_[turn.home] = 0;
    return count;
  }

  void Issue(const Turn& turn, Step* step) {
    if (!ReadsHome(turn.home)) {
      while (turn.pool->CanIssue()) turn.pool->Issue(0);
      return;
    }
    while (turn.pool->CanIssue()) {
      resident_ -= turn.pool->resident_units();
      step->reads.push_back(turn.pool->Issue(reads_++));
      resident_ += turn.pool->resident_units();
      resident_peak_ = std::max(resident_peak_, resident_ + parcels_.held_units());
      counts_.Add(step->reads.back());
    }
  }

  // Delivers, sends, releases or passes over a sample.
  void Place(const Drawn& drawn, std::uint32_t place, std::uint64_t rows, Step* step) {
    const std::uint32_t rank = place % job_.world_size;
    const std::uint32_t lane = rank - job_.rank;  // wraps below the stream's first rank
    const std::uint32_t slot = place / job_.world_size;
    const std::uint64_t at = lane * rows + slot;
    if (lane < job_.ranks) {
      step->deliveries[at] = {.sample = drawn.from.sample,
                              .rank = rank,
                              .slot = slot,
                              .block_read = drawn.from.block_read};
    } else if (!job_.exchange) {
      step->releases.push_back({.block_read = drawn.from.block_read, .sample = drawn.from.sample});
    }
    if (!job_.exchange || NodeOf(rank) == drawn.home) return;
    parcels_.Send({.home = drawn.home,
                   .to = NodeOf(rank),
                   .sample = drawn.from.sample,
                   .units = drawn.from.units,
                   .block_read = drawn.from.block_read,
                   .delivery = at},
                  step, &reads_);
    resident_peak_ = std::max(resident_peak_, resident_ + parcels_.TakePeak());
  }

  // Fills the rows past the last sample with the batch's own samples, from its first place on. At
  // its home each has a read of its own; to another node it is a parcel of its own, as it may be
  // the same sample as others.
  void Pad(std::uint64_t rows, Step* step) {
    const auto places = static_cast<std::uint32_t>(rows * job_.world_size);
    for (auto place = static_cast<std::uint32_t>(at_place_.size()); place < places; ++place) {
      Drawn pad = at_place_[place % at_place_.size()];
      const std::uint32_t rank = place % job_.world_size;
      pad.from.block_read = kNoBlockRead;
      if (!job_.exchange) {
        if (rank - job_.rank < job_.ranks) Place(pad, place, rows, step);
        continue;
      }
      if (pad.home == job_.node() && NodeOf(rank) != pad.home) {
        pad.from.block_read = reads_;
        step->reads.push_back({.number = reads_++, .first = pad.from.sample, .count = 1});
        counts_.Add(step->reads.back());
      }
      Place(pad, place, rows, step);
      parcels_.FlushAll(step, &reads_);
    }
  }

  const OrderOptions job_;
  const std::uint32_t homes_;
  const std::uint64_t pools_of_home_;
  EpochSteps steps_;
  HomeTurns turns_;
  std::deque<EpochPoolPlan> plans_;  // of each home
  DueReads due_;
  EpochParcels parcels_;
  std::vector<EpochPool> pools_;  // of home 0, of home 1, ...; empty: not entered yet
  std::vector<std::uint64_t> next_pool_;
  std::vector<std::uint64_t> in_group_;  // pools of each home; 0 between groups
  std::vector<std::uint32_t> places_;    // of each position of the step
  std::vector<Drawn> at_place_;          // of a step that pads
  std::uint64_t reads_ = 0;

  std::uint64_t resident_ = 0;  // units, in the pools that the stream reads
  std::uint64_t resident_peak_ = 0;
  EpochReadCounts counts_;
};

}  // namespace

std::unique_ptr<Order> MakeEpochHomesOrder(const EpochOrderOptions& options,
                                           std::uint64_t steps_per_epoch, Position start) {
  return std::make_unique<EpochHomesOrder>(options, steps_per_epoch, start);
}

std::uint64_t EpochHomesOrderPools(const EpochOrderOptions& options) {
  return options.job.exchange ? options.pools / options.home_count() : options.pools;
}

std::uint64_t EpochHomesOrderParcels(const EpochOrderOptions& options) {
  if (!options.job.exchange) return 0;
  return 2 * EpochParcelUnits(options.job, *options.blocks, options.home_count());
}

}  // namespace headrace
