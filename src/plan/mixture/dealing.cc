#include "plan/mixture/dealing.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace headrace {

void DealDraws(std::span<const Draw> draws, std::uint32_t ranks, std::uint64_t seed,
               std::uint64_t step, std::span<DealtRow> rows) {
  HEADRACE_CHECK(draws.size() % ranks == 0 && rows.size() == draws.size());
  std::vector<std::uint32_t> turn(ranks);
  std::iota(turn.begin(), turn.end(), 0);
  Prng prng(seed, /*epoch=*/0, RandomStream::kMixture, step / ranks);
  for (std::size_t i = ranks; i > 1; --i) std::swap(turn[i - 1], turn[prng.Below(i)]);
  std::vector<std::uint64_t> by_source(draws.size());  // and by position
  for (std::size_t i = 0; i < draws.size(); ++i) {
    by_source[i] = std::uint64_t{draws[i].source} << 32 | i;
  }
  std::sort(by_source.begin(), by_source.end());
  for (std::size_t i = 0; i < by_source.size(); ++i) {
    rows[static_cast<std::uint32_t>(by_source[i])].rank = turn[(i + step) % ranks];
  }
  std::vector<std::uint32_t> taken(ranks);
  for (DealtRow& row : rows) row.slot = taken[row.rank]++;
}

}  // namespace headrace
