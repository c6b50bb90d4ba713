#include "node/server/seats.h"

#include <set>

namespace headrace {

std::optional<std::uint32_t> SeatOf(std::span<const Seat> seats, const LaneClient& client) {
  for (std::uint32_t seat = 0; seat < seats.size(); ++seat) {
    if (seats[seat].client.get() == &client) return seat;
  }
  return std::nullopt;
}

SharedTakes::Ranks RanksInRun(std::span<const Seat> seats, std::uint32_t lane,
                              const SessionRun& run) {
  SharedTakes::Ranks found;
  for (std::uint32_t seat = 0; seat < seats.size(); ++seat) {
    if (seats[seat].lane == lane && seats[seat].run.get() == &run) found.insert(seat);
  }
  return found;
}

std::vector<std::uint32_t> LanesOf(std::span<const Seat> seats,
                                   std::span<const std::uint32_t> ranks) {
  std::set<std::uint32_t> lanes;
  for (const std::uint32_t rank : ranks) lanes.insert(seats[rank].lane);
  return {lanes.begin(), lanes.end()};
}

}  // namespace headrace
