#include "headrace/order_options.h"

#include <algorithm>
#include <string>

#include "base/format/errors.h"
#include "base/prng.h"
#include "base/units.h"

namespace headrace {
namespace {

// Bounds that keep every product below 2^64 and reveal mistakes.
constexpr std::uint64_t kSamplesMax = std::uint64_t{1} << 40;
constexpr std::uint64_t kBatchMax = std::uint64_t{1} << 24;
constexpr std::uint32_t kWorldMax = std::uint32_t{1} << 20;

Status CheckBetween(const char* what, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
  if (value >= least && value <= most) return Status();
  return InvalidArgument("{}: got {}, must be in [{}, {}]", what, value, least, most);
}

}  // namespace

Result<std::uint64_t> StepsPerEpoch(const OrderOptions& options) {
  HEADRACE_RETURN_IF_ERROR(CheckBetween("samples", options.sample_count, 1, kSamplesMax));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("batch_size", options.batch_size, 1, kBatchMax));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("world_size", options.world_size, 1, kWorldMax));
  HEADRACE_RETURN_IF_ERROR(CheckBetween("rank", options.rank, 0, options.world_size - 1));
  const std::uint32_t ranks_max = options.world_size - options.rank;
  if (options.ranks < 1 || options.ranks > ranks_max) {
    return InvalidArgument(
        "ranks: got {}, must be in [1, {}] from rank {} on, of a world_size of {}", options.ranks,
        ranks_max, options.rank, options.world_size);
  }
  HEADRACE_RETURN_IF_ERROR(CheckBetween("epochs", options.epochs, 1, kEpochsMax));
  const std::uint64_t world = options.world_size;
  if (!options.drop_last) {
    const std::uint64_t rows = (options.sample_count + world - 1) / world;
    return (rows + options.batch_size - 1) / options.batch_size;
  }
  const std::uint64_t steps = options.sample_count / (options.batch_size * world);
  if (steps == 0) {
    return InvalidArgument(
        "batch_size {} x world_size {} with drop_last: dataset has {}, so an epoch would have no "
        "batch; lower batch_size or use drop_last=False",
        options.batch_size, world, Counted(options.sample_count, "sample"));
  }
  return steps;
}

std::uint64_t RowsOfStep(const OrderOptions& options, std::uint64_t step) {
  if (options.drop_last) return options.batch_size;
  const std::uint64_t rows_of_rank =
      (options.sample_count + options.world_size - 1) / options.world_size;
  return std::min(options.batch_size, rows_of_rank - step * options.batch_size);
}

Status CheckStart(const OrderOptions& options, std::uint64_t steps_per_epoch, Position start) {
  if (start.epoch <= options.epochs && start.step < steps_per_epoch) return Status();
  return OutOfRange("starting at epoch {} step {}: the loader has {} of {}, numbered from 0",
                    start.epoch, start.step, Counted(options.epochs, "epoch"),
                    Counted(steps_per_epoch, "step"));
}

}  // namespace headrace
