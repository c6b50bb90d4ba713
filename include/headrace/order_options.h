#pragma once

// The options of an order, and a position in it. An order decides which rank gets which sample at
// which step (docs/orders.md); it depends on these values and the dataset only. Plain structs and
// pure functions, for any thread.

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "headrace/ids.h"
#include "headrace/members.h"
#include "headrace/status.h"

namespace headrace {

// A position between two steps: the next step to deliver. At the end of an epoch it is step 0 of
// the next one. A saved state contains it.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend auto operator<=>(const Position&, const Position&) = default;
};
HEADRACE_MEMBERS(Position, epoch, step)

// For messages: "step 3 of epoch 1".
inline std::string StepText(Position at) {
  return "step " + std::to_string(at.step) + " of epoch " + std::to_string(at.epoch);
}

// The properties of a job that every order needs.
struct OrderOptions {
  std::uint64_t sample_count = 0;
  std::uint64_t batch_size = 1;  // of one rank
  std::uint32_t world_size = 1;
  std::uint32_t rank = 0;   // the first of the stream's ranks
  std::uint32_t ranks = 1;  // number of the stream's ranks, from `rank` on: one, or those of a node
  // Whether nodes of `ranks` ranks each read their own blocks only and send each other samples:
  // node n has ranks n * ranks, n * ranks + 1, ... Otherwise each stream reads all that it
  // delivers. Only for orders that support it.
  bool exchange = false;
  std::uint64_t seed = 0;
  bool shuffle = true;     // false: every epoch is 0, 1, 2, ...
  bool drop_last = false;  // drop the final, smaller global batch; otherwise pad it to equal ranks
  std::uint64_t epochs = std::uint64_t{1} << 24;  // the stream ends after this many, from epoch 0
  // A permutation of so many entries or more is a keyed bijection (docs/orders.md). Set by the
  // order: it is one of its parameters.
  std::uint64_t bijection_from = std::uint64_t{1} << 24;

  // With `exchange`: the number of nodes, and the stream's own node.
  [[nodiscard]] std::uint32_t nodes() const { return exchange ? world_size / ranks : 1; }
  [[nodiscard]] std::uint32_t node() const { return exchange ? rank / ranks : 0; }
};
HEADRACE_MEMBERS(OrderOptions, sample_count, batch_size, world_size, rank, ranks, exchange, seed,
                 shuffle, drop_last, epochs, bijection_from)

// Parameters of an order by name, besides OrderOptions. As given by a user; or with every default
// filled in, as in a saved state.
using OrderParameter = std::variant<std::int64_t, std::string>;
using OrderParameters = std::map<std::string, OrderParameter, std::less<>>;

// One number for each sample: homes and costs of orders that take them.
using SampleTable = std::shared_ptr<const std::vector<std::uint32_t>>;

// One of several datasets whose samples come in proportion to weights.
struct MixtureSource {
  std::string name;           // unique; its random numbers depend on it
  std::uint64_t samples = 0;  // at least 1
  // The source ends after so many passes over its samples; the others then share its weight.
  // std::nullopt: it has no end.
  std::optional<std::uint64_t> passes_max;
};
HEADRACE_MEMBERS(MixtureSource, name, samples, passes_max)

// From position `begin` on, until the next stage begins, these weights are in force.
struct MixtureStage {
  std::uint64_t begin = 0;      // in samples
  std::vector<double> weights;  // of each source, in any unit; 0: it is not drawn
};
HEADRACE_MEMBERS(MixtureStage, begin, weights)

// When a mixture ends, beside where all its sources have ended. A source that has no passes_max
// has one pass here.
enum class MixtureEnd : std::uint8_t {
  kNever,  // goes on as long as a source does
  kFirst,  // with the first source that has had its passes
  kAll,    // when the last source has had its passes; the others go on until then
};

struct MixtureOptions {
  // At most 2^20. Sample numbers are those of the first source, then those of the second, ...
  std::vector<MixtureSource> sources;
  // By `begin`; the first begins at 0. A change of weights in a run is one stage more.
  std::vector<MixtureStage> stages;
  MixtureEnd end = MixtureEnd::kNever;
  // Samples of an epoch, of a mixture that does not end; 0 of one that ends: all of it.
  std::uint64_t epoch_samples = 0;
};
HEADRACE_MEMBERS(MixtureOptions, sources, stages, end, epoch_samples)

// An order given as a list: one epoch of one rank, batch after batch. For samplers and index lists
// of the user.
struct ListOrderOptions {
  std::vector<SampleId> ids;              // of this rank, in order; repeats are allowed
  std::vector<std::uint64_t> batch_ends;  // ascending positions in `ids`; the last is ids.size()
  std::uint64_t epoch = 0;
  std::uint64_t first_step = 0;  // the stream starts here
  std::uint32_t rank = 0;
};
HEADRACE_MEMBERS(ListOrderOptions, ids, batch_ends, epoch, first_step, rank)

// Variance of a batch's share of a label, relative to batches dealt at random.
struct ExpectedInflation {
  // How much more often two samples of one global batch are of one block than any two of the
  // dataset, as a share of what is possible; over whole epochs.
  double sharing = 0;
  double of_blocks = 1;               // 1 + (m - 1) sharing: for the worst possible labels
  std::optional<double> correlation;  // of the labels in blocks, if there are labels
  std::optional<double> of_labels;    // 1 + (m - 1) correlation sharing
  // of_blocks at the beginning of a run of `epoch` whose first fill is partial: for about as many
  // samples as the pools hold.
  double of_blocks_first = 1;
  std::optional<double> of_labels_first;
};
HEADRACE_MEMBERS(ExpectedInflation, sharing, of_blocks, correlation, of_labels, of_blocks_first,
                 of_labels_first)

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
