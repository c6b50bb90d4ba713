#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "headrace/ids.h"
#include "workers/layout.h"

namespace headrace {

// Samples of a batch.
struct TaskSamples {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t first_slot = 0;
  std::vector<SampleId> samples;  // by slot, from first_slot on
};

// A transformed batch. Its destructor frees its memory, on any thread.
struct TransformedBatch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool ends_epoch = false;
  bool beyond_budget = false;  // made while the consumer held all memory for batches
  std::vector<SampleId> samples;
  OutputLayout layout;
  std::vector<std::string> objects;  // of each task, by slot: its leaves that are not arrays
  Buffer memory;

  // Those in the slots [first, first + rows).
  [[nodiscard]] TaskSamples SamplesAt(std::uint64_t first, std::uint64_t rows) const {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(first);
    return {.epoch = epoch,
            .step = step,
            .first_slot = first,
            .samples = {begin, begin + static_cast<std::ptrdiff_t>(rows)}};
  }
};

// Why there is no batch.
struct TransformFailure {
  enum class Kind : std::uint8_t {
    kTransform,   // the transform failed for the first sample of `tasks`
    kShape,       // the results form no batch: see `text`
    kStart,       // a worker could not start; no text: it closed its connection
    kWorkerLost,  // a worker ended later; it had `tasks`, oldest first
  };
  Kind kind = Kind::kTransform;
  std::size_t worker = 0;  // kStart, kWorkerLost
  std::string text;
  std::string pickle;  // of the exception; may be empty
  std::vector<TaskSamples> tasks;
};

// A batch, or why there is none.
struct TransformTaken {
  std::unique_ptr<TransformedBatch> batch;  // null: the time limit passed, a failure, or the end
  std::optional<TransformFailure> failure;
  bool ended = false;
};

}  // namespace headrace
