#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "loader/session/session.h"
#include "node/server/lane_client.h"
#include "node/server/shared_takes.h"

namespace headrace {

// A rank of a job in its node process; its place in a list of these is its local rank. Ranks that
// get the same batches share a lane of the engine.
struct LocalRank {
  std::shared_ptr<LaneClient> client;
  std::uint32_t lane = 0;
  std::uint64_t start = 0;          // number of the run that it is in, or asks for
  std::shared_ptr<SessionRun> run;  // null: it is in no run
  std::size_t tiers_in_trouble = 0;
  bool answered = false;
};

// std::nullopt: the client is none of these ranks.
std::optional<std::uint32_t> LocalRankOf(std::span<const LocalRank> ranks,
                                         const LaneClient& client);

// The ranks of a lane that are in that run.
SharedTakes::Ranks RanksInRun(std::span<const LocalRank> ranks, std::uint32_t lane,
                              const SessionRun& run);

}  // namespace headrace
