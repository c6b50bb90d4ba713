#pragma once

#include <vector>

#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

// Returns the batch fields for `fields` (empty: every field of `index`, as stored).
//
// Errors: InvalidArgument  unknown field, a field twice, an image or sound transform for a field
//                          that has none, an invalid transform
Result<std::vector<BatchField>> MakeSchema(const Index& index,
                                           const std::vector<LoaderField>& fields);

// The most bytes that a store may add to a read, both ends together.
inline constexpr std::uint64_t kWideningMax = 2 * kBufferAlignment;

// Size statistics from at most 1,000 samples, spread over the dataset.
struct SampleSizes {
  std::uint64_t read_bytes_mean = 0;  // of one stored field
  std::uint64_t read_bytes_max = 0;
  std::uint64_t row_bytes_mean = 0;      // of all ragged fields of one sample, as batches hold them
  std::uint64_t stand_in_bytes_max = 0;  // buffers for these fields of one sample, as charged
};
SampleSizes LookAtSizes(const Index& index, const std::vector<BatchField>& schema);

}  // namespace headrace
