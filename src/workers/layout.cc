#include "workers/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/units.h"

namespace headrace {
namespace {

using Dims = std::span<const std::uint64_t>;

std::string Describe(const LeafShape& leaf, Dims dims) {
  if (leaf.object) return "an object";
  std::string listed;
  for (const std::uint64_t dim : dims)
    listed += fmt::format("{}{}", listed.empty() ? "" : ", ", dim);
  return fmt::format("{} ({}{})", leaf.dtype, listed, dims.size() == 1 ? "," : "");
}

// Nothing if it is beyond what a batch may take.
std::optional<std::uint64_t> Bytes(std::uint64_t item_bytes, Dims dims) {
  std::uint64_t bytes = item_bytes;
  for (const std::uint64_t dim : dims) {
    if (dim != 0 && bytes > kOutputBytesMax / dim) return std::nullopt;
    bytes *= dim;
  }
  return bytes;
}

bool TakePlace(std::uint64_t bytes, std::uint64_t& end, std::uint64_t& offset) {
  if (bytes > kOutputBytesMax || end > kOutputBytesMax) return false;
  offset = RoundUp(end, kOutputAlignment);
  end = offset + bytes;
  return true;
}

// What rows of one leaf have in common, whatever their dimensions.
bool AreOfOneKind(const LeafShape& one, const LeafShape& other) {
  return one.object == other.object && one.dtype == other.dtype &&
         one.item_bytes == other.item_bytes && one.rank == other.rank;
}

// Lays out one leaf of every task.
class LeafLayout {
 public:
  LeafLayout(std::span<const TaskShapes> tasks, std::size_t number)
      : tasks_(tasks), number_(number) {}

  bool Make(RaggedRows ragged, std::uint64_t rows, std::uint64_t& end, OutputLeaf& leaf,
            ShapeMismatch& mismatch) const {
    const LeafShape& first = tasks_[0].leaves[number_];
    leaf = {.dtype = first.dtype, .item_bytes = first.item_bytes, .rank = first.rank};
    if (!CheckAlike(ragged, mismatch)) return false;
    if (first.object) {
      leaf.kind = OutputLeaf::Kind::kObject;
      return true;
    }
    leaf.dims.assign(first.row(0).begin(), first.row(0).end());
    if ((ragged == RaggedRows::kPad || ragged == RaggedRows::kList) && first.rank > 0) {
      leaf.kind = ragged == RaggedRows::kPad ? OutputLeaf::Kind::kPadded : OutputLeaf::Kind::kList;
      CollectRows(leaf);
    }
    const bool fits =
        leaf.kind == OutputLeaf::Kind::kList ? PlaceList(leaf, end) : PlaceRows(rows, leaf, end);
    if (!fits) {
      mismatch = {tasks_[0].first_slot,
                  fmt::format("leaf {}: the batch would take more than 4 TiB", number_)};
    }
    return fits;
  }

 private:
  bool CheckAlike(RaggedRows ragged, ShapeMismatch& mismatch) const {
    const LeafShape& first = tasks_[0].leaves[number_];
    for (const TaskShapes& task : tasks_) {
      const LeafShape& leaf = task.leaves[number_];
      const bool of_one_kind = AreOfOneKind(first, leaf);
      const bool may_differ = ragged == RaggedRows::kPad || ragged == RaggedRows::kList;
      if (of_one_kind && (may_differ || leaf.object)) continue;
      for (std::uint64_t row = 0; row < task.rows; ++row) {
        if (of_one_kind && std::ranges::equal(leaf.row(row), first.row(0))) continue;
        mismatch = {task.first_slot + row,
                    fmt::format("leaf {} is {}, that of the first sample {}", number_,
                                Describe(leaf, leaf.row(row)), Describe(first, first.row(0)))};
        return false;
      }
    }
    return true;
  }

  void CollectRows(OutputLeaf& leaf) const {
    for (const TaskShapes& task : tasks_) {
      for (std::uint64_t row = 0; row < task.rows; ++row) {
        const Dims dims = task.leaves[number_].row(row);
        leaf.row_dims.insert(leaf.row_dims.end(), dims.begin(), dims.end());
        for (std::size_t i = 0; i < dims.size(); ++i)
          leaf.dims[i] = std::max(leaf.dims[i], dims[i]);
      }
    }
  }

  static bool PlaceRows(std::uint64_t rows, OutputLeaf& leaf, std::uint64_t& end) {
    const auto bytes = Bytes(leaf.item_bytes, leaf.dims);
    if (!bytes.has_value() || (*bytes != 0 && rows > kOutputBytesMax / *bytes)) return false;
    return TakePlace(*bytes * rows, end, leaf.offset);
  }

  static bool PlaceList(OutputLeaf& leaf, std::uint64_t& end) {
    for (std::size_t at = 0; at < leaf.row_dims.size(); at += leaf.rank) {
      const auto bytes = Bytes(leaf.item_bytes, Dims(leaf.row_dims).subspan(at, leaf.rank));
      std::uint64_t offset = 0;
      if (!bytes.has_value() || !TakePlace(*bytes, end, offset)) return false;
      leaf.row_offsets.push_back(offset);
    }
    return true;
  }

  const std::span<const TaskShapes> tasks_;
  const std::size_t number_;
};

}  // namespace

std::span<const std::uint64_t> LeafShape::row(std::uint64_t row) const {
  if (rank == 0) return {};
  const std::uint64_t at = dims.size() == rank ? 0 : row * rank;
  return std::span(dims).subspan(at, rank);
}

std::uint64_t OutputLeaf::row_bytes() const { return Bytes(item_bytes, dims).value_or(0); }

bool OutputLayout::is_plain() const {
  return std::all_of(leaves.begin(), leaves.end(), [](const OutputLeaf& leaf) {
    return leaf.kind == OutputLeaf::Kind::kRows || leaf.kind == OutputLeaf::Kind::kObject;
  });
}

OutputLayout OutputLayout::ForRows(std::uint64_t other_rows) const {
  OutputLayout other = *this;
  other.rows = other_rows;
  other.bytes = 0;
  for (OutputLeaf& leaf : other.leaves) {
    if (leaf.kind == OutputLeaf::Kind::kObject) continue;
    leaf.offset = RoundUp(other.bytes, kOutputAlignment);
    other.bytes = leaf.offset + leaf.row_bytes() * other_rows;
  }
  return other;
}

bool MakeOutputLayout(std::span<const TaskShapes> tasks, RaggedRows ragged, OutputLayout& layout,
                      ShapeMismatch& mismatch) {
  const TaskShapes& first = tasks[0];
  layout = {.tree = first.tree};
  for (const TaskShapes& task : tasks) {
    layout.rows += task.rows;
    if (task.tree == first.tree && task.leaves.size() == first.leaves.size()) continue;
    mismatch = {task.first_slot, "the structure differs from that of the first sample"};
    return false;
  }
  for (std::size_t i = 0; i < first.leaves.size(); ++i) {
    OutputLeaf leaf;
    if (!LeafLayout(tasks, i).Make(ragged, layout.rows, layout.bytes, leaf, mismatch)) return false;
    layout.leaves.push_back(std::move(leaf));
  }
  return true;
}

TaskShapes ShapesOf(const OutputLayout& layout, std::uint64_t first_slot, std::uint64_t rows) {
  TaskShapes shapes{.first_slot = first_slot, .rows = rows, .tree = layout.tree};
  for (const OutputLeaf& leaf : layout.leaves) {
    shapes.leaves.push_back({.object = leaf.kind == OutputLeaf::Kind::kObject,
                             .dtype = leaf.dtype,
                             .item_bytes = leaf.item_bytes,
                             .rank = leaf.rank,
                             .dims = leaf.dims});
  }
  return shapes;
}

}  // namespace headrace
