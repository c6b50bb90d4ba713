#include "node/server/seats.h"

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

}  // namespace headrace
