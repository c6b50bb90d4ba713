#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "plan/order.h"

namespace headrace {

// What fixes the `exact` order: everything stays as the sampler says.
struct ExactOrderOptions {
  std::uint64_t sample_count = 0;
  std::uint64_t batch_size = 1;  // of one rank
  std::uint32_t world_size = 1;
  std::uint32_t rank = 0;  // whose deliveries the stream holds
  std::uint64_t seed = 0;
  bool shuffle = true;     // else every epoch is 0, 1, 2, ...
  bool drop_last = false;  // drop the final, smaller global batch; else pad it to equal ranks
  std::uint64_t epochs = std::uint64_t{1} << 24;  // the stream ends after this many, from epoch 0
};

// Steps of one epoch, the same for every rank. With drop_last the samples beyond the last full
// global batch are dropped. Without, the sequence is padded from its own beginning to a multiple of
// world_size and the last batch may be smaller, by the same number on every rank.
//
// Errors: InvalidArgument  a count of 0 or beyond its limit, rank not below world_size, or an epoch
//                          without a step (drop_last and a global batch above the dataset)
Result<std::uint64_t> ExactStepsPerEpoch(const ExactOrderOptions& options);

// Step t of epoch e holds positions [t*G, (t+1)*G) of the epoch's permutation, G = batch_size *
// world_size; position p goes to rank p mod world_size, slot (p mod G) / world_size: what torch's
// DistributedSampler does with a list. Enters any position in O(1) steps: O(samples) for the
// epoch's permutation, which takes 4 bytes a sample up to Permutation::kTableMax samples.
//
// Errors: those of ExactStepsPerEpoch; OutOfRange  `start` lies past an epoch's last step or past
// the
//         last epoch
Result<std::unique_ptr<Order>> MakeExactOrder(const ExactOrderOptions& options, Position start);

// An order somebody else decided: one epoch of one rank, batch after batch. For samplers and index
// lists of the user.
struct ListOrderOptions {
  std::vector<SampleId> ids;              // of this rank, in order; repeats are allowed
  std::vector<std::uint64_t> batch_ends;  // ascending positions in `ids`; the last is ids.size()
  std::uint64_t epoch = 0;
  std::uint64_t first_step = 0;  // the stream starts here
  std::uint32_t rank = 0;
};
std::unique_ptr<Order> MakeListOrder(ListOrderOptions options);

}  // namespace headrace
