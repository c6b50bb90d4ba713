#include "plan/epoch/epoch_homes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "plan/home_tables.h"

namespace headrace {

__extension__ using Uint128 = unsigned __int128;

Result<std::shared_ptr<const EpochHomes>> EpochHomes::Make(const BlockMap& blocks,
                                                           std::uint32_t count,
                                                           const SampleTable& table) {
  HEADRACE_CHECK(count > 0);
  std::shared_ptr<EpochHomes> homes(new EpochHomes);
  homes->block_count_ = blocks.block_count();
  homes->samples_.resize(count);
  if (table != nullptr) {
    HEADRACE_RETURN_IF_ERROR(homes->ReadTable(blocks, *table));
  } else if (count == 1) {
    homes->samples_[0] = blocks.sample_count();
  } else {
    for (std::uint64_t block = 0; block < blocks.block_count(); ++block) {
      homes->samples_[block % count] += blocks.block(block).count;
    }
  }
  const auto empty = std::ranges::find(homes->samples_, 0U);
  if (empty != homes->samples_.end()) {
    return InvalidArgument(
        "order epoch: homes: got {}, but node {} is the home of none of the {}; give every node a "
        "block, or lower homes=",
        count, empty - homes->samples_.begin(), Counted(blocks.block_count(), "block"));
  }
  return std::shared_ptr<const EpochHomes>(std::move(homes));
}

Status EpochHomes::ReadTable(const BlockMap& blocks, const std::vector<std::uint32_t>& table) {
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> homes, HomesOfBlocks(blocks, table));
  tables_.resize(samples_.size());
  for (std::uint64_t i = 0; i < homes.size(); ++i) {
    if (homes[i] >= samples_.size()) {
      return InvalidArgument(
          "order epoch: the home of block {} (sample {}) is node {}, must be below {}, the number "
          "of homes",
          i, Raw(blocks.block(i).first), homes[i], samples_.size());
    }
    samples_[homes[i]] += blocks.block(i).count;
    tables_[homes[i]].push_back(i);
  }
  return Status();
}

EpochHomes::Blocks EpochHomes::blocks(std::uint32_t home) const {
  if (!tables_.empty()) return {0, 0, tables_[home].size(), &tables_[home]};
  return {home, count(), (block_count_ - home + count() - 1) / count(), nullptr};
}

std::uint64_t EpochHomes::most_samples() const { return *std::ranges::max_element(samples_); }

std::uint32_t EpochHomes::least_home() const {
  std::uint32_t least = 0;
  for (std::uint32_t home = 1; home < count(); ++home) {
    if (blocks(home).size() < blocks(least).size()) least = home;
  }
  return least;
}

HomeTurns::HomeTurns(std::vector<std::uint64_t> samples)
    : samples_(std::move(samples)),
      total_(std::accumulate(samples_.begin(), samples_.end(), std::uint64_t{0})),
      taken_(samples_.size()) {
  Seek(0);
}

bool HomeTurns::Before(const Entry& a, const Entry& b) {
  const Uint128 of_a = Uint128{a.turn} * b.samples;
  const Uint128 of_b = Uint128{b.turn} * a.samples;
  return of_a != of_b ? of_a < of_b : a.home < b.home;
}

void HomeTurns::Seek(std::uint64_t position) {
  HEADRACE_CHECK(position <= total_);
  // Samples that stand before a / N of the epoch are at most half a sample a home more than a.
  const std::uint64_t slack = samples_.size() / 2 + 1;
  const std::uint64_t a = position < slack ? 0 : position - slack;
  std::uint64_t reached = 0;
  heap_.clear();
  for (std::uint32_t home = 0; home < samples_.size(); ++home) {
    // Those with (2 * j + 1) * N < 2 * a * n.
    const Uint128 before = Uint128{2} * a * samples_[home] + total_ - 1;
    taken_[home] = static_cast<std::uint64_t>(before / (Uint128{2} * total_));
    reached += taken_[home];
    heap_.push_back({.turn = 2 * taken_[home] + 1, .samples = samples_[home], .home = home});
  }
  std::ranges::sort(heap_, Before);  // A sorted list is a heap.
  HEADRACE_CHECK(reached <= position);
  for (; reached < position; ++reached) Advance();
}

void HomeTurns::Advance() {
  ++taken_[heap_.front().home];
  heap_.front().turn += 2;
  Sink(0);
}

void HomeTurns::Sink(std::size_t at) {
  const Entry entry = heap_[at];
  for (;;) {
    std::size_t child = 2 * at + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && Before(heap_[child + 1], heap_[child])) ++child;
    if (Before(entry, heap_[child])) break;
    heap_[at] = heap_[child];
    at = child;
  }
  heap_[at] = entry;
}

}  // namespace headrace
