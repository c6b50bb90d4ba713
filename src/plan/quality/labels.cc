#include "plan/quality/labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "headrace/index.h"
#include "plan/quality/measures.h"

namespace headrace {
namespace {

bool IsWhole(DType dtype) {
  return dtype != DType::kFloat16 && dtype != DType::kFloat32 && dtype != DType::kFloat64;
}

// Numbers values 0, 1, ... by first appearance: a hash table with linear probing, at most half
// full.
class Numbers {
 public:
  std::uint32_t Of(std::uint64_t value) {
    std::size_t at = Mix64(value) & (places_.size() - 1);
    while (places_[at].number != kFree && places_[at].value != value) {
      at = (at + 1) & (places_.size() - 1);
    }
    if (places_[at].number != kFree) return places_[at].number;
    const std::uint32_t number = size_++;
    places_[at] = {.value = value, .number = number};
    if (2 * std::size_t{size_} > places_.size()) Grow();
    return number;
  }
  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kFree = 0xffff'ffff;
  struct Place {
    std::uint64_t value = 0;
    std::uint32_t number = kFree;
  };

  void Grow() {
    std::vector<Place> old(2 * places_.size());
    old.swap(places_);
    for (const Place& place : old) {
      if (place.number == kFree) continue;
      std::size_t at = Mix64(place.value) & (places_.size() - 1);
      while (places_[at].number != kFree) at = (at + 1) & (places_.size() - 1);
      places_[at] = place;
    }
  }

  std::vector<Place> places_ = std::vector<Place>(1024);
  std::uint32_t size_ = 0;
};

}  // namespace

Result<SampleTable> InlineLabels(const Index& index) {
  constexpr std::uint64_t kRun = 4096;  // samples looked up in one call
  const auto fields = index.fields();
  const auto field = std::ranges::find_if(fields, [](const FieldInfo& each) {
    return each.name == "label" && each.is_inline && !each.is_variable() && each.shape.empty() &&
           IsWhole(each.dtype);
  });
  if (field == fields.end()) return SampleTable();
  const auto position = static_cast<std::size_t>(field - fields.begin());
  const std::uint64_t width = field->array_bytes();
  auto labels = std::make_shared<std::vector<std::uint32_t>>();
  labels->reserve(index.sample_count());
  std::vector<std::byte> values(kRun * width);
  Numbers numbers;
  for (std::uint64_t first = 0; first < index.sample_count(); first += kRun) {
    const std::uint64_t count = std::min(kRun, index.sample_count() - first);
    HEADRACE_RETURN_IF_ERROR(
        index.CopyInlineValues(position, SampleId{first}, std::span(values).first(count * width)));
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, values.data() + i * width, width);
      labels->push_back(numbers.Of(bits));
    }
    if (numbers.size() > kDifferentLabelsMax) return SampleTable();
  }
  return SampleTable(std::move(labels));
}

double IntraBlockCorrelation(std::span<const std::uint32_t> labels, const BlockMap& blocks) {
  HEADRACE_CHECK(labels.size() == blocks.sample_count());
  struct Label {
    std::uint64_t block = 0;     // 1 + the last block with this label
    std::uint32_t in_block = 0;  // samples in that block
    std::uint32_t number = 0;    // samples in all
  };
  // Foreign labels may have any gaps; a table indexed by label would have them, too.
  const bool has_gaps =
      !labels.empty() && *std::ranges::max_element(labels) >= labels.size() + kDifferentLabelsMax;
  Numbers numbers;
  std::vector<Label> seen;
  double mates = 0;
  double equal_mates = 0;  // ordered pairs of one block and one label
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const BlockMap::Block block = blocks.block(i);
    for (const std::uint32_t given : labels.subspan(Raw(block.first), block.count)) {
      const std::uint32_t label = has_gaps ? numbers.Of(given) : given;
      if (label >= seen.size()) seen.resize(std::max<std::size_t>(label + 1, 2 * seen.size()));
      Label& at = seen[label];
      if (at.block != i + 1) at = {.block = i + 1, .in_block = 0, .number = at.number};
      equal_mates += 2.0 * at.in_block++;
      ++at.number;
    }
    mates += static_cast<double>(block.count) * (block.count - 1.0);
  }
  double equal = 0;  // ordered pairs of one label
  for (const Label& label : seen) equal += label.number * (label.number - 1.0);
  const auto n = static_cast<double>(labels.size());
  if (mates == 0 || n < 2) return 0;  // no sample has a mate
  const double by_chance = equal / (n * (n - 1));
  if (by_chance >= 1) return 0;  // all samples have one label
  return (equal_mates / mates - by_chance) / (1 - by_chance);
}

std::optional<ExpectedInflation> ExpectedLabelInflation(const OrderFactory& order,
                                                        const OrderRequest& resolved,
                                                        const SampleTable& labels) {
  if (!resolved.job.shuffle) return std::nullopt;
  const std::optional<BatchSharing> sharing = order.ExpectedSharing(resolved);
  if (!sharing) return std::nullopt;
  const double batch = static_cast<double>(resolved.job.batch_size) * resolved.job.world_size;
  const double others = std::min(batch, static_cast<double>(resolved.job.sample_count)) - 1;
  ExpectedInflation expected{.sharing = sharing->mean,
                             .of_blocks = 1 + others * sharing->mean,
                             .of_blocks_first = 1 + others * sharing->first};
  if (labels != nullptr && resolved.blocks != nullptr) {
    expected.correlation = IntraBlockCorrelation(*labels, *resolved.blocks);
    // Mates that are rarer than by chance, in a batch or by label, need no warning; nor does the
    // product of two such values.
    expected.of_labels =
        1 + others * std::max(sharing->mean, 0.0) * std::max(*expected.correlation, 0.0);
    expected.of_labels_first =
        1 + others * std::max(sharing->first, 0.0) * std::max(*expected.correlation, 0.0);
  }
  return expected;
}

}  // namespace headrace
