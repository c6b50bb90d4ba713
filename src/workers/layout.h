#pragma once

// workers/ runs a user's Python transform in worker processes. It divides a loader's batches into
// tasks of some rows each, sends tasks to workers, and returns the results as batches, in order.
// docs/workers.md describes it for users; worker_messages.h defines the messages between processes.
//
// This header computes the memory layout of a batch's results. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headrace {

// What to do if the samples of a batch differ in shape. kWhole: the batch is computed again in one
// task, whose result is the batch; so are all later ones.
enum class RaggedRows : std::uint8_t { kError, kPad, kList, kWhole };

// How results form batches, and in which order the consumer takes these.
struct ResultForm {
  bool whole_batches = false;  // a task is a whole batch; its result is one batch, of any shape
  RaggedRows ragged = RaggedRows::kError;
  bool in_order = true;  // of the source; else as they are complete

  // True if the layout of one batch is probably that of all.
  [[nodiscard]] bool is_uniform() const {
    return !whole_batches && (ragged == RaggedRows::kError || ragged == RaggedRows::kWhole);
  }
};

// One leaf of what a transform returned for the samples of a task.
struct LeafShape {
  bool object = false;           // not an array: pickled, takes no memory of the batch
  std::string dtype;             // NumPy's name; arrays only
  std::uint64_t item_bytes = 0;  // of one element
  std::uint64_t rank = 0;        // dimensions
  // `rank` of them for each sample, or once if all samples are equal.
  std::vector<std::uint64_t> dims;

  // The dimensions of sample number `row` of the task.
  [[nodiscard]] std::span<const std::uint64_t> row(std::uint64_t row) const;
};

// The shapes of a task's results.
struct TaskShapes {
  std::uint64_t first_slot = 0;
  std::uint64_t rows = 0;
  std::string tree;  // how leaves form a result; equal for equal structures
  std::vector<LeafShape> leaves;
};

// Where one leaf of a batch lies.
struct OutputLeaf {
  enum class Kind : std::uint8_t { kRows, kPadded, kList, kObject };
  Kind kind = Kind::kRows;
  std::string dtype;
  std::uint64_t item_bytes = 0;
  std::uint64_t rank = 0;
  std::vector<std::uint64_t> dims;         // kRows: of every sample; kPadded: the largest of each
  std::uint64_t offset = 0;                // kRows, kPadded: of the first sample
  std::vector<std::uint64_t> row_dims;     // kPadded, kList: `rank` of them for each sample
  std::vector<std::uint64_t> row_offsets;  // kList

  // kRows, kPadded: of one sample.
  [[nodiscard]] std::uint64_t row_bytes() const;
};

struct OutputLayout {
  std::string tree;
  std::vector<OutputLeaf> leaves;
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;

  // The same layout for another number of samples. Only if is_plain().
  [[nodiscard]] OutputLayout ForRows(std::uint64_t other_rows) const;
  // True if every leaf is kRows or kObject: then workers can write later batches directly.
  [[nodiscard]] bool is_plain() const;
};

// Why results form no batch: the slot, and how it differs from the first one.
struct ShapeMismatch {
  std::uint64_t slot = 0;
  std::string text;
};

// Alignment of leaves in the memory of a batch, and of rows of a list.
inline constexpr std::uint64_t kOutputAlignment = 64;
// Most bytes of one batch: a larger one means a wrong shape.
inline constexpr std::uint64_t kOutputBytesMax = std::uint64_t{1} << 42;

// Lays out the batch that `tasks`, ordered by slot, form. Returns false and sets `mismatch` if they
// form none.
bool MakeOutputLayout(std::span<const TaskShapes> tasks, RaggedRows ragged, OutputLayout& layout,
                      ShapeMismatch& mismatch);

// The shapes of a task's results that were written into `layout`, which must be plain.
TaskShapes ShapesOf(const OutputLayout& layout, std::uint64_t first_slot, std::uint64_t rows);

}  // namespace headrace
