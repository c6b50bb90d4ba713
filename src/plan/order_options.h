#pragma once

#include <cstdint>

#include "base/status.h"
#include "plan/order.h"

namespace headrace {

// The properties of a job that every order needs.
struct OrderOptions {
  std::uint64_t sample_count = 0;
  std::uint64_t batch_size = 1;  // of one rank
  std::uint32_t world_size = 1;
  std::uint32_t rank = 0;   // the first of the stream's ranks
  std::uint32_t ranks = 1;  // number of the stream's ranks, from `rank` on: one, or those of a node
  // Whether nodes of `ranks` ranks each read their own blocks only and send each other samples:
  // node n has ranks n * ranks, n * ranks + 1, ... Otherwise each stream reads all that it
  // delivers. Only orders whose factories say that they can.
  bool exchange = false;
  std::uint64_t seed = 0;
  bool shuffle = true;     // false: every epoch is 0, 1, 2, ...
  bool drop_last = false;  // drop the final, smaller global batch; otherwise pad it to equal ranks
  std::uint64_t epochs = std::uint64_t{1} << 24;  // the stream ends after this many, from epoch 0
  // A permutation of so many entries or more is a keyed bijection: see Permutation. Factories set
  // it: it is a parameter of their orders.
  std::uint64_t bijection_from = std::uint64_t{1} << 24;

  // With `exchange`: the nodes, and the stream's.
  [[nodiscard]] std::uint32_t nodes() const { return exchange ? world_size / ranks : 1; }
  [[nodiscard]] std::uint32_t node() const { return exchange ? rank / ranks : 0; }
};

// Steps of one epoch, the same for every rank and order. With drop_last the samples beyond the last
// full global batch are dropped. Otherwise the sequence is padded to a multiple of world_size, and
// the last batch may be smaller, by the same number on every rank.
//
// Errors: InvalidArgument  a count of 0 or beyond its limit, a rank not below world_size, or an
//                          epoch without a step (drop_last and a global batch above the dataset)
Result<std::uint64_t> StepsPerEpoch(const OrderOptions& options);

// Rows of one rank in step `step` of an epoch.
std::uint64_t RowsOfStep(const OrderOptions& options, std::uint64_t step);

// Errors: OutOfRange  `start` lies past an epoch's last step or past the last epoch
Status CheckStart(const OrderOptions& options, std::uint64_t steps_per_epoch, Position start);

}  // namespace headrace
