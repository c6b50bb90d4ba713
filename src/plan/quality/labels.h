#pragma once

// The expected effect of an order on the labels of a batch, from the order's parameters alone:
// known when a loader is made, before it reads anything.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "headrace/status.h"
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

// std::nullopt if the order does not shuffle, or OrderFactory::ExpectedSharing() returns that.
// `labels` may be null.
std::optional<ExpectedInflation> ExpectedLabelInflation(const OrderFactory& order,
                                                        const OrderRequest& resolved,
                                                        const SampleTable& labels);

}  // namespace headrace
