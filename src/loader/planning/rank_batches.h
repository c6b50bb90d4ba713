#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/index.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

// The samples of one rank's batches, as a loader with the same options delivers them. Reads only
// the index: for those who fetch the samples themselves, in the loader's order.
//
// Thread safety: none.
class RankBatches {
 public:
  // The place of a rank among those that share its engine, and their number.
  struct Lane {
    std::uint32_t place = 0;
    std::uint32_t count = 1;
  };
  // One batch: samples in the order of their slots.
  struct Batch {
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;
    bool ends_epoch = false;
    std::vector<std::uint64_t> samples;
  };

  // Of the rank `options.job.rank`. `lane`: its place among the ranks that share its engine.
  //
  // Errors: InvalidArgument  there is no such lane, or no such rank in it
  //         those of ResolveConfig, and of making its order
  static Result<std::unique_ptr<RankBatches>> Make(const std::shared_ptr<const Index>& index,
                                                   LoaderOptions options, Lane lane,
                                                   Position start);

  // Returns the next batch; std::nullopt after the last one.
  std::optional<Batch> Next();

 private:
  RankBatches(std::unique_ptr<Order> order, std::uint32_t rank)
      : order_(std::move(order)), rank_(rank) {}

  const std::unique_ptr<Order> order_;
  const std::uint32_t rank_;
};

}  // namespace headrace
