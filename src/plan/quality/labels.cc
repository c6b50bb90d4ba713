#include "plan/quality/labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "index/index.h"

namespace headrace {
namespace {

// Ordered pairs of different samples of one block, by sample: mates of a mean sample.
double MeanMates(const BlockMap& blocks) {
  double pairs = 0;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const double count = blocks.block(i).count;
    pairs += count * (count - 1);
  }
  return pairs / static_cast<double>(blocks.sample_count());
}

double Number(const OrderParameters& parameters, std::string_view name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return 0;
  const auto* number = std::get_if<std::int64_t>(&found->second);
  return number == nullptr ? 0 : static_cast<double>(*number);
}

// Samples that a draw of the `epoch` order chooses from, over all pools. Half a block a pool is
// free on average: the next one does not fit.
double JoinedSamples(const OrderRequest& request) {
  const BlockMap& blocks = *request.blocks;
  const auto n = static_cast<double>(blocks.sample_count());
  const auto total_bytes =
      static_cast<double>(blocks.total_units()) * static_cast<double>(blocks.unit_bytes());
  const double resident = Number(request.parameters, "pool_bytes") / total_bytes * n;
  const double mean_block = n / static_cast<double>(blocks.block_count());
  const double free = std::max(1.0, Number(request.parameters, "pools")) * mean_block / 2;
  const double joined = 1 - Number(request.parameters, "join_permille") / 1000;
  // With half of the dataset joined, mates are as far apart as chance has them.
  return std::clamp((resident - free) * joined, 1.0, std::max(1.0, n / 2));
}

// Pairs of a batch that are drawn from one pool, as a share of all its pairs. Position g is drawn
// from pool g mod pools.
double SamePoolShare(std::uint64_t batch, std::uint64_t pools) {
  if (batch < 2) return 0;
  const auto whole = static_cast<double>(batch / pools);
  const auto rest = static_cast<double>(batch % pools);
  const double pairs = rest * whole * (whole + 1) / 2 +
                       (static_cast<double>(pools) - rest) * whole * (whole - 1) / 2;
  const auto size = static_cast<double>(batch);
  return pairs / (size * (size - 1) / 2);
}

double EpochSharing(const OrderRequest& request) {
  const BlockMap& blocks = *request.blocks;
  const auto n = static_cast<double>(blocks.sample_count());
  const double mates = MeanMates(blocks);
  const double by_chance = n > 1 ? mates / (n - 1) : 0;
  const double joined = JoinedSamples(request);
  const std::uint64_t batch = request.job.batch_size * request.job.world_size;
  const auto pools = static_cast<std::uint64_t>(std::max(1.0, Number(request.parameters, "pools")));
  // Mean of exp(-d / M) over the distances d of a batch's pairs.
  const double x = static_cast<double>(batch) / joined;
  const double decay = x < 1e-4 ? 1 - x / 3 : 2 / (x * x) * (x - 1 + std::exp(-x));
  // A pool holds its share of the joined samples, so mates that share it are as much nearer.
  const double together =
      mates / (2 * joined) * decay * static_cast<double>(pools) * SamePoolShare(batch, pools);
  if (by_chance >= 1) return 0;  // one block is all there is
  return (together - by_chance) / (1 - by_chance);
}

}  // namespace

Result<SampleTable> InlineLabels(const Index& index) {
  const auto fields = index.fields();
  const auto field = std::ranges::find_if(fields, [](const FieldInfo& each) {
    return each.name == "label" && each.is_inline && each.shape.empty() &&
           each.array_bytes() <= sizeof(std::uint64_t);
  });
  if (field == fields.end()) return SampleTable();
  const auto position = static_cast<std::size_t>(field - fields.begin());
  auto labels = std::make_shared<std::vector<std::uint32_t>>();
  labels->reserve(index.sample_count());
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  for (std::uint64_t i = 0; i < index.sample_count(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                              index.inline_value(position, SampleId{i}));
    std::uint64_t bits = 0;
    std::memcpy(&bits, value.data(), std::min(value.size(), sizeof(bits)));
    const auto next = static_cast<std::uint32_t>(numbers.size());
    labels->push_back(numbers.try_emplace(bits, next).first->second);
  }
  return SampleTable(std::move(labels));
}

double IntraBlockCorrelation(std::span<const std::uint32_t> labels, const BlockMap& blocks) {
  HEADRACE_CHECK(labels.size() == blocks.sample_count());
  std::unordered_map<std::uint32_t, double> counts;
  for (const std::uint32_t label : labels) counts[label] += 1;
  double equal = 0;  // ordered pairs of one label
  for (const auto& [label, count] : counts) equal += count * (count - 1);
  const auto n = static_cast<double>(labels.size());
  double mates = 0;
  double equal_mates = 0;
  std::vector<std::uint32_t> block_labels;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const BlockMap::Block block = blocks.block(i);
    const auto run = labels.subspan(Raw(block.first), block.count);
    block_labels.assign(run.begin(), run.end());
    std::ranges::sort(block_labels);
    double run_length = 0;
    for (std::size_t k = 0; k < block_labels.size(); ++k) {
      run_length = k > 0 && block_labels[k] == block_labels[k - 1] ? run_length + 1 : 0;
      equal_mates += 2 * run_length;
    }
    mates += static_cast<double>(block.count) * (block.count - 1.0);
  }
  if (mates == 0 || n < 2) return 0;  // nobody has a mate
  const double by_chance = equal / (n * (n - 1));
  if (by_chance >= 1) return 0;  // one label is all there is
  return (equal_mates / mates - by_chance) / (1 - by_chance);
}

std::optional<double> ExpectedSharing(std::string_view order, const OrderRequest& resolved) {
  if (!resolved.job.shuffle) return std::nullopt;
  if (order == "exact" || order == "batch") return 0.0;
  if (order == "epoch" && resolved.blocks != nullptr) return EpochSharing(resolved);
  return std::nullopt;
}

std::optional<ExpectedInflation> ExpectedLabelInflation(std::string_view order,
                                                        const OrderRequest& resolved,
                                                        const SampleTable& labels) {
  const std::optional<double> sharing = ExpectedSharing(order, resolved);
  if (!sharing) return std::nullopt;
  const double others = static_cast<double>(resolved.job.batch_size) * resolved.job.world_size - 1;
  ExpectedInflation expected{.sharing = *sharing, .of_blocks = 1 + others * *sharing};
  if (labels != nullptr && resolved.blocks != nullptr) {
    expected.correlation = IntraBlockCorrelation(*labels, *resolved.blocks);
    expected.of_labels = 1 + others * *sharing * *expected.correlation;
  }
  return expected;
}

}  // namespace headrace
