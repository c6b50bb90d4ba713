#pragma once

// What an order is expected to do to the labels of a batch, from its parameters alone: said when a
// loader is made, before anything is read.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"

namespace headrace {

class Index;

// Beyond so many different ones labels tell samples apart, not classes.
inline constexpr std::uint32_t kDifferentLabelsMax = std::uint32_t{1} << 20;

// Number of each sample's label, 0, 1, ... by first appearance: of the inline scalar field `label`
// of whole numbers. Null: the dataset has none, or more than kDifferentLabelsMax different ones.
// Some ns a sample, for every loader of an order that reads blocks is opened with it.
//
// Errors: DataLoss  an inline value cannot be had
Result<SampleTable> InlineLabels(const Index& index);

// How much more often two samples of one block have the same label than any two of the dataset, as
// a share of what is possible: 0 where mates are random, 1 where every block is of one label. The
// intra-class correlation of a cluster sample (Kish 1965), for categories.
double IntraBlockCorrelation(std::span<const std::uint32_t> labels, const BlockMap& blocks);

// Variance of a batch's share of a label, over that of batches dealt at random.
struct ExpectedInflation {
  double sharing = 0;                 // BatchSharing::mean
  double of_blocks = 1;               // 1 + (m - 1) sharing: the worst labels there could be
  std::optional<double> correlation;  // of the labels in blocks, where there are labels
  std::optional<double> of_labels;    // 1 + (m - 1) correlation sharing
  // The same at the beginning of a run of `epoch` whose first fill is partial: for about as many
  // samples as the pools hold.
  double of_blocks_first = 1;
  std::optional<double> of_labels_first;
};

// Nothing where the order does not shuffle, or OrderFactory::ExpectedSharing() says nothing.
// `labels` may be null.
std::optional<ExpectedInflation> ExpectedLabelInflation(const OrderFactory& order,
                                                        const OrderRequest& resolved,
                                                        const SampleTable& labels);

}  // namespace headrace
