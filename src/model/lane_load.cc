#include "model/lane_load.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace headrace {

LoadModel::LoadModel(const LoadRates& rates, int threads_max, LoadPools pools) : pools_(pools) {
  HEADRACE_CHECK(threads_max >= 1);
  of_a_byte_.reserve(static_cast<std::size_t>(threads_max));
  OfAByte least{.remote = kUnlimited, .storage = kUnlimited};
  least.local.fill(kUnlimited);
  for (int threads = 1; threads <= threads_max; ++threads) {
    for (std::size_t tier = 0; tier < rates.local.size(); ++tier) {
      least.local[tier] = std::min(least.local[tier], 1 / rates.local[tier].Rate(threads));
    }
    least.remote = std::min(least.remote, 1 / rates.remote.Rate(threads));
    least.storage = std::min(least.storage, 1 / rates.storage.Rate(threads));
    of_a_byte_.push_back(least);
  }
}

double LoadModel::LoadSeconds(const LaneLoad& lane, int threads) const {
  HEADRACE_CHECK(threads >= 1 && threads <= threads_max());
  const OfAByte& of_a_byte = of_a_byte_[static_cast<std::size_t>(threads - 1)];
  double local = 0;
  for (std::size_t tier = 0; tier < of_a_byte.local.size(); ++tier) {
    local += lane.local_bytes[tier] * of_a_byte.local[tier];
  }
  const double remote = lane.remote_bytes * of_a_byte.remote;
  const double storage = lane.storage_bytes * of_a_byte.storage;
  return pools_ == LoadPools::kShared ? local + remote + storage
                                      : std::max({local, remote, storage});
}

int LoadModel::ThreadsFor(const LaneLoad& lane, double seconds, int threads_most) const {
  if (Seconds(lane, threads_most) > seconds) return 0;
  int too_few = 0;
  int enough = threads_most;
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (Seconds(lane, middle) > seconds ? too_few : enough) = middle;
  }
  return enough;
}

}  // namespace headrace
