#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "plan/block_map.h"
#include "plan/epoch/epoch_options.h"
#include "plan/permutation.h"

namespace headrace {

// One epoch of the order `epoch`, as docs/orders.md has it, slowly and on lists; without padding.
class EpochModel {
 public:
  using Ids = std::vector<std::uint64_t>;

  EpochModel(const EpochOrderOptions& options, std::uint64_t epoch)
      : options_(options),
        blocks_(*options.blocks),
        epoch_(epoch),
        homes_(options.home_count()),
        pools_of_home_(options.pools / homes_),
        blocks_of_home_(homes_),
        delivered_(homes_) {
    std::vector<std::uint64_t> samples(homes_);
    for (std::uint64_t home = 0; home < homes_; ++home) {
      for (std::uint64_t i = 0; i < blocks_.block_count(); ++i) {
        if (HomeOf(i) != home) continue;
        blocks_of_home_[home].push_back(i);
        samples[home] += blocks_.block(i).count;
      }
    }
    // (2 * j + 1) / (2 * n) of the epoch, as an integer that is exact for small numbers.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> turns;
    std::uint64_t common = 1;
    for (const std::uint64_t n : samples) common = std::lcm(common, n);
    for (std::uint64_t home = 0; home < homes_; ++home) {
      for (std::uint64_t j = 0; j < samples[home]; ++j) {
        turns.emplace_back((2 * j + 1) * (common / samples[home]), home);
      }
    }
    std::ranges::sort(turns);
    const std::uint64_t batch = options.job.batch_size * options.job.world_size;
    if (options.job.drop_last) turns.resize(turns.size() / batch * batch);
    for (const auto& [turn, home] : turns) {
      home_of_position_.push_back(home);
      ++delivered_[home];
    }
  }

  // The sample at every position.
  [[nodiscard]] Ids Positions() const {
    std::vector<Ids> of_homes;
    for (std::uint64_t home = 0; home < homes_; ++home) {
      Ids& of_home = of_homes.emplace_back(delivered_[home]);
      for (std::uint64_t pool = 0; pool < pools_of_home_; ++pool) {
        const Ids drawn = Draws(home, pool);
        for (std::size_t k = 0; k < drawn.size(); ++k)
          of_home[k * pools_of_home_ + pool] = drawn[k];
      }
    }
    Ids positions;
    std::vector<std::size_t> next(homes_);
    for (const std::uint64_t home : home_of_position_) {
      positions.push_back(of_homes[home][next[home]++]);
    }
    return positions;
  }

  // The sample at every place: each step's positions, dealt. With one home those of Positions().
  [[nodiscard]] Ids Places() const {
    Ids positions = Positions();
    if (homes_ == 1) return positions;
    const std::uint64_t batch = options_.job.batch_size * options_.job.world_size;
    Ids places(positions.size());
    for (std::uint64_t step = 0; step * batch < positions.size(); ++step) {
      const std::uint64_t begin = step * batch;
      Ids dealt(std::min(batch, positions.size() - begin));
      for (std::size_t i = 0; i < dealt.size(); ++i) dealt[i] = i;
      Prng words(options_.job.seed, epoch_, RandomStream::kDeal, step);
      for (std::uint64_t left = dealt.size(); left > 1; --left) {
        std::swap(dealt[left - 1], dealt[words.Below(left)]);
      }
      for (std::size_t i = 0; i < dealt.size(); ++i)
        places[begin + dealt[i]] = positions[begin + i];
    }
    return places;
  }

  [[nodiscard]] std::uint64_t HomeOf(std::uint64_t block) const {
    for (std::uint32_t home = 1; home < homes_; ++home) {
      const EpochHomes::Blocks of_home = options_.homes->blocks(home);
      for (std::uint64_t i = 0; i < of_home.size(); ++i) {
        if (of_home.At(i) == block) return home;
      }
    }
    return 0;
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

  std::vector<Ids> Pieces(std::uint64_t home, std::uint64_t pool, std::uint64_t epoch) const {
    const std::vector<std::uint64_t>& own = blocks_of_home_[home];
    const Permutation permutation(own.size(), options_.job.seed, epoch, RandomStream::kOrder,
                                  options_.job.bijection_from, home);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sequence;  // sample, block
    for (std::uint64_t at = 0; at < own.size(); ++at) {
      const BlockMap::Block block = blocks_.block(own[permutation.At(at)]);
      for (std::uint64_t i = 0; i < block.count; ++i) {
        sequence.emplace_back(Raw(block.first) + i, at);
      }
    }
    sequence.resize(delivered_[home]);
    std::uint64_t begin = 0;
    for (std::uint64_t before = 0; before < pool; ++before) begin += Length(home, before);
    std::vector<Ids> pieces;
    for (std::uint64_t i = begin; i < begin + Length(home, pool); ++i) {
      if (i == begin || sequence[i].second != sequence[i - 1].second) pieces.emplace_back();
      pieces.back().push_back(sequence[i].first);
    }
    return pieces;
  }

  std::uint64_t Length(std::uint64_t home, std::uint64_t pool) const {
    std::uint64_t length = 0;
    for (std::uint64_t g = pool; g < delivered_[home]; g += pools_of_home_) ++length;
    return length;
  }

  Ids Draws(std::uint64_t home, std::uint64_t pool) const {
    const std::uint64_t budget = options_.pool_units / options_.pools;
    const std::uint64_t full = budget - budget * options_.join_permille / 1000;
    const std::uint64_t at_once = epoch_ == 0 ? full * options_.first_fill_permille / 1000 : full;
    const std::uint64_t delay =
        std::max<std::uint64_t>(1, budget * options_.job.sample_count * options_.join_permille /
                                       (1000 * blocks_.total_units()));
    const std::uint64_t first_join = std::max<std::uint64_t>(1, budget * options_.job.sample_count *
                                                                    options_.first_join_permille /
                                                                    (1000 * blocks_.total_units()));
    std::vector<Ids> to_issue = Pieces(home, pool, epoch_);
    const std::size_t of_this_epoch = to_issue.size();
    for (Ids& piece : Pieces(home, pool, epoch_ + 1)) to_issue.push_back(std::move(piece));
    std::vector<std::uint64_t> joins;  // of the pieces issued
    std::size_t issued = 0;
    std::size_t joined_pieces = 0;
    std::uint64_t units = 0;
    Ids resident;
    Ids joined;
    Ids drawn;
    Prng words(options_.job.seed, epoch_, RandomStream::kPool, pool * homes_ + home);
    for (std::uint64_t k = 0; k < Length(home, pool); ++k) {
      while (issued < to_issue.size() && Units(resident) + Units(to_issue[issued]) <= budget) {
        const Ids& piece = to_issue[issued++];
        resident.insert(resident.end(), piece.begin(), piece.end());
        if (issued > of_this_epoch) continue;
        units += Units(piece);
        std::uint64_t join = k + delay;
        if (units <= budget) {
          join =
              units <= at_once || budget == full ? 0 : (units - at_once) * delay / (budget - full);
          if (epoch_ == 0 && options_.first_join_permille != 0) {
            join = units <= at_once ? 0 : (units - at_once) * first_join / (budget - at_once);
          }
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
  const std::uint64_t homes_;
  const std::uint64_t pools_of_home_;
  std::vector<std::vector<std::uint64_t>> blocks_of_home_;
  std::vector<std::uint64_t> delivered_;  // of each home, in an epoch
  std::vector<std::uint64_t> home_of_position_;
};

}  // namespace headrace
