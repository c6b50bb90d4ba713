#pragma once

// workers/ runs a user's Python transform in processes of its own: batches of a loader go out as
// tasks of some rows each, what the workers make of them comes back as batches, in order.
// docs/workers.md says what users see; worker_messages.h what passes between the processes.
//
// This header: which memory the results of a batch take. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headrace {

// What happens where the samples of a batch differ in shape.
enum class RaggedRows : std::uint8_t { kError, kPad, kList };

// One leaf of what a transform returned for the samples of a task.
struct LeafShape {
  bool object = false;              // no array: pickled, and no memory of the batch
  std::string dtype;                // NumPy's name; of an array
  std::uint64_t item_bytes = 0;     // of an element
  std::uint64_t rank = 0;           // dimensions
  std::vector<std::uint64_t> dims;  // rank of them for every sample, or once if all are alike

  // The dimensions of sample number `row` of the task.
  [[nodiscard]] std::span<const std::uint64_t> row(std::uint64_t row) const;
};

// What a task's results look like.
struct TaskShapes {
  std::uint64_t first_slot = 0;
  std::uint64_t rows = 0;
  std::string tree;  // how leaves make up a result; equal for equal structures
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
  std::vector<std::uint64_t> row_dims;     // kPadded, kList: rank of them for every sample
  std::vector<std::uint64_t> row_offsets;  // kList

  // kRows, kPadded: of one sample.
  [[nodiscard]] std::uint64_t row_bytes() const;
};

struct OutputLayout {
  std::string tree;
  std::vector<OutputLeaf> leaves;
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;

  // The same for another number of samples; only where it is plain.
  [[nodiscard]] OutputLayout ForRows(std::uint64_t other_rows) const;
  // Whether every leaf is kRows or kObject: then batches to come can be written at once.
  [[nodiscard]] bool is_plain() const;
};

// Why results make no batch: at which slot, and how it differs from the first one.
struct ShapeMismatch {
  std::uint64_t slot = 0;
  std::string text;
};

// Leaves begin at this in the memory of a batch, and rows of a list.
inline constexpr std::uint64_t kOutputAlignment = 64;
// Bytes that one batch may take: beyond, a shape is a mistake.
inline constexpr std::uint64_t kOutputBytesMax = std::uint64_t{1} << 42;

// Lays out the batch whose samples the tasks were, by slot. False if they make none; then
// `mismatch` says why.
bool MakeOutputLayout(std::span<const TaskShapes> tasks, RaggedRows ragged, OutputLayout& layout,
                      ShapeMismatch& mismatch);

// What a task that was written into `layout`, which is plain, looks like.
TaskShapes ShapesOf(const OutputLayout& layout, std::uint64_t first_slot, std::uint64_t rows);

}  // namespace headrace
