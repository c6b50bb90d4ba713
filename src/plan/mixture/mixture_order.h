#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/mixture/mixture.h"
#include "plan/order.h"

namespace headrace {

// Options of an order over a mixture's samples: those of its first source, then those of the
// second, and so on. `job.sample_count` is their sum.
struct MixtureOrderOptions {
  OrderOptions job;
  std::shared_ptr<const Mixture> mixture;
  // Positions of an epoch. Of a mixture that ends, its length: in each epoch every source goes on
  // where it was, in the same proportions from the beginning. Of one that goes on for ever, epoch e
  // has positions [e * epoch_positions, ...).
  std::uint64_t epoch_positions = 0;
};

// The steps of a mixture whose sources are drawn as in the order `exact`: each of a source's passes
// is a permutation of its own, or its samples as they are stored. Step t of an epoch has positions
// [t*G, (t+1)*G), G = batch_size * world_size, padded from the epoch's beginning as in `exact`, and
// deals them to the ranks (DealDraws). So a step has the same samples on any number of ranks with
// the same G.
//
// Enters any position in O(sources) steps, after at most O(samples) for the permutations of the
// current passes. They take 4 bytes a sample; if the sources have `bijection_from` samples together
// or more, a source of 4,096 samples or more takes neither time nor memory.
//
// Errors: InvalidArgument  epoch_positions of 0, or other than the mixture's length; a number of
//                          samples other than the sources'
//         and those of StepsPerEpoch and CheckStart for an epoch of epoch_positions
Result<std::unique_ptr<Order>> MakeMixtureOrder(const MixtureOrderOptions& options, Position start);

}  // namespace headrace
