#include "sim/published/streams.h"

#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "plan/block_map.h"
#include "plan/exact_order.h"
#include "plan/order_factory.h"
#include "plan/placement/uses.h"

namespace headrace {
namespace {

OrderOptions OrderOf(const SimulatedJob& job) {
  return {.sample_count = job.sizes.size(),
          .batch_size = job.batch_size,
          .world_size = job.cluster.nodes,
          .seed = job.seed,
          .drop_last = true,
          .epochs = job.epochs};
}

}  // namespace

Status SimulatedJob::Check() const {
  HEADRACE_RETURN_IF_ERROR(cluster.Check());
  if (sizes.size() >= 0xffff'ffff) {
    return InvalidArgument("simulating: got {} samples, must be below 2^32 - 1", sizes.size());
  }
  for (std::size_t sample = 0; sample < sizes.size(); ++sample) {
    if (sizes[sample] >= 0 && std::isfinite(sizes[sample])) continue;
    return InvalidArgument("simulating: sample {} has {} bytes, must be a number of at least 0",
                           sample, sizes[sample]);
  }
  return StepsPerEpoch(OrderOf(*this)).status();
}

Result<Streams> Streams::Make(const SimulatedJob& job) {
  HEADRACE_RETURN_IF_ERROR(job.Check());
  const OrderOptions options = OrderOf(job);
  Streams streams;
  streams.epochs_ = job.epochs;
  HEADRACE_ASSIGN_OR_RETURN(streams.steps_per_epoch_, StepsPerEpoch(options));
  OrderRequest request;
  request.job = options;
  HEADRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<UseStream> uses,
      MakeOrderUses(ExactOrderFactory(), request, MakeUniformBlocks(job.sizes.size(), 1),
                    {.world_size = options.world_size, .ranks_per_node = 1}, {}));
  streams.samples_.resize(job.cluster.nodes);
  for (std::vector<std::uint32_t>& samples : streams.samples_) {
    samples.reserve(streams.steps() * job.batch_size);
  }
  StepUses step;
  while (uses->Next(step)) {
    for (std::uint32_t node = 0; node < job.cluster.nodes; ++node) {
      const std::span<const std::uint32_t> of_node = step.OfNode(node);
      streams.samples_[node].insert(streams.samples_[node].end(), of_node.begin(), of_node.end());
    }
  }
  return streams;
}

void Streams::Replace(std::uint32_t node, std::vector<std::uint32_t> samples) {
  HEADRACE_CHECK(samples.size() == samples_[node].size());
  samples_[node] = std::move(samples);
}

}  // namespace headrace
