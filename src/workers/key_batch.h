#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// Batches for workers that read the samples themselves, as of a dataset in Python: a row is a key,
// bytes that say to the worker which sample it is.

// Their one field, `key`: rows of bytes.
std::vector<BatchField> KeySchema();

// What the batch of these keys is called, and the numbers of its samples, one a key.
struct KeyBatchHead {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<SampleId> samples;
};

// Copies the keys into memory of `pool`, which is shared with workers; beyond its capacity if it is
// full. Thread safety: any thread.
//
// Errors: ResourceExhausted  the system has no memory for them
Result<std::shared_ptr<Batch>> MakeKeyBatch(BufferPool& pool, KeyBatchHead head,
                                            std::span<const std::string_view> keys);

}  // namespace headrace
