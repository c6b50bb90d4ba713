#include "loader/session/near_lanes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace headrace {

Result<NearLanes> NearLanes::Make(const NearLanesOptions& options, const NumaRequest& numa) {
  NearLanes near;
  const std::vector<std::size_t> node_of_lane = NumaNodesOfLanes(numa, options.lanes);
  std::map<std::size_t, std::size_t> lanes_of_node;
  for (const std::size_t node : node_of_lane) ++lanes_of_node[node];
  std::map<std::size_t, std::size_t> place_of_node;
  const bool near_all = lanes_of_node.size() < 2;  // Then the system does it as well.
  for (const auto& [node, lanes] : lanes_of_node) {
    const int threads =
        static_cast<int>(static_cast<std::size_t>(options.threads) * lanes / options.lanes);
    ThreadExecutorOptions executor{
        .threads = std::max(1, threads), .name = "headrace-decode", .nice = options.nice};
    if (!near_all) executor.cpus = numa.nodes[node].cpus;
    Place place;
    HEADRACE_ASSIGN_OR_RETURN(place.executor, ThreadExecutor::Make(executor));
    place.staging = BufferPool::Make(options.staging_bytes * lanes / options.lanes);
    if (!near_all) numa.prefer(numa.nodes[node].number, place.staging->mapping());
    place_of_node[node] = near.places_.size();
    near.places_.push_back(std::move(place));
  }
  for (const std::size_t node : node_of_lane) {
    near.place_of_lane_.push_back(place_of_node[node]);
    const std::uint64_t batch_bytes = options.batch_bytes / options.lanes;
    std::shared_ptr<BufferPool> memory;
    if (options.shared_batches) {
      HEADRACE_ASSIGN_OR_RETURN(memory, BufferPool::MakeShared(batch_bytes));
    } else {
      memory = BufferPool::Make(batch_bytes);
    }
    near.batch_memory_.push_back(std::move(memory));
    if (!near_all) numa.prefer(numa.nodes[node].number, near.batch_memory_.back()->mapping());
  }
  return near;
}

EngineLane NearLanes::lane(std::size_t number) const {
  const Place& place = places_[place_of_lane_[number]];
  return {.batch_memory = batch_memory_[number],
          .staging = place.staging,
          .executor = place.executor.get()};
}

}  // namespace headrace
