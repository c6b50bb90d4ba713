#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/mixture/mixture.h"
#include "plan/order.h"

namespace headrace {

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
// `job.sample_count` is mixture.epoch_samples(): it counts positions here, not the dataset's
// samples.
//
// Errors: those of StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeMixtureOrder(const OrderOptions& job,
                                                std::shared_ptr<const Mixture> mixture,
                                                Position start);

}  // namespace headrace
