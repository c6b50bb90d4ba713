#pragma once

// The expected effect of an order on the labels of a batch, from the order's parameters alone:
// known when a loader is made, before it reads anything.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"

namespace headrace {

class Index;

// With more different labels than this, they identify samples, not classes.
inline constexpr std::uint32_t kDifferentLabelsMax = std::uint32_t{1} << 20;

// The number of each sample's label, 0, 1, ... by first appearance, from the inline scalar field
// `label` of integers. Null: the dataset has none, or more than kDifferentLabelsMax different ones.
// Takes a few ns a sample, for every loader with an order that reads blocks.
//
// Errors: DataLoss  an inline value cannot be read
Result<SampleTable> InlineLabels(const Index& index);

// How much more often two samples of one block have the same label than any two of the dataset, as
// a share of the possible: 0 if mates are random, 1 if every block has one label. The intra-class
// correlation of a cluster sample (Kish 1965), for categories.
double IntraBlockCorrelation(std::span<const std::uint32_t> labels, const BlockMap& blocks);

// How much more often two samples of one global batch are of one block than any two of the dataset,
// as a share of the possible. std::nullopt: no closed form is known. `resolved` are the parameters
// returned by OrderFactory::Resolve().
//
// `epoch`, over whole epochs of n samples: a sample stays in a pool of M joined samples for a time
// that is exponential with mean M, so two mates are d positions apart with density exp(-d / M) / (2
// M). M samples join at the start of an epoch, and M are left when the last block has joined: over
// the epoch this adds (1 + exp(-2 (n - M) / M)) / (4 n). Positions of different pools are never
// mates.
std::optional<double> ExpectedSharing(std::string_view order, const OrderRequest& resolved);

// Variance of a batch's share of a label, relative to batches dealt at random.
struct ExpectedInflation {
  double sharing = 0;                 // as above
  double of_blocks = 1;               // 1 + (m - 1) sharing: for the worst possible labels
  std::optional<double> correlation;  // of the labels in blocks, if there are labels
  std::optional<double> of_labels;    // 1 + (m - 1) correlation sharing
  // of_blocks at the beginning of a run of `epoch` whose first fill is partial: for about as many
  // samples as the pools hold.
  double of_blocks_first = 1;
  std::optional<double> of_labels_first;
};

// std::nullopt if ExpectedSharing() returns that. `labels` may be null.
std::optional<ExpectedInflation> ExpectedLabelInflation(std::string_view order,
                                                        const OrderRequest& resolved,
                                                        const SampleTable& labels);

}  // namespace headrace
