#include "node/server/local_ranks.h"

namespace headrace {

std::optional<std::uint32_t> LocalRankOf(std::span<const LocalRank> ranks,
                                         const LaneClient& client) {
  for (std::uint32_t local_rank = 0; local_rank < ranks.size(); ++local_rank) {
    if (ranks[local_rank].client.get() == &client) return local_rank;
  }
  return std::nullopt;
}

SharedTakes::Ranks RanksInRun(std::span<const LocalRank> ranks, std::uint32_t lane,
                              const SessionRun& run) {
  SharedTakes::Ranks found;
  for (std::uint32_t local_rank = 0; local_rank < ranks.size(); ++local_rank) {
    if (ranks[local_rank].lane == lane && ranks[local_rank].run.get() == &run)
      found.insert(local_rank);
  }
  return found;
}

}  // namespace headrace
