#include "workers/key_batch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "engine/batch/batch_memory.h"

namespace headrace {

std::vector<BatchField> KeySchema() {
  return {{.name = "key", .dtype = DType::kUInt8, .ragged = true, .row_bytes = 1}};
}

Result<std::shared_ptr<Batch>> MakeKeyBatch(BufferPool& pool, KeyBatchHead head,
                                            std::span<const std::string_view> keys) {
  HEADRACE_CHECK(head.samples.size() == keys.size());
  std::uint64_t bytes = 0;
  for (const std::string_view key : keys) bytes += RoundUp(key.size(), kRowAlignment);
  auto batch = std::make_shared<Batch>();
  batch->epoch = head.epoch;
  batch->step = head.step;
  batch->samples = std::move(head.samples);
  std::optional<Buffer> buffer = pool.Acquire(std::max<std::uint64_t>(bytes, 1));
  if (!buffer.has_value()) buffer = pool.AcquireBeyond(std::max<std::uint64_t>(bytes, 1));
  if (!buffer.has_value()) {
    return ResourceExhausted("the system has no memory for {} of {}", Counted(keys.size(), "key"),
                             FormatBytes(bytes));
  }
  batch->memory = std::make_shared<BatchMemory>();
  batch->memory->rows = *std::move(buffer);
  BatchRows& rows = batch->fields.emplace_back();
  std::span<std::byte> rest = batch->memory->rows.bytes();
  for (const std::string_view key : keys) {
    std::memcpy(rest.data(), key.data(), key.size());
    rows.rows.push_back(rest.first(key.size()));
    rest = rest.subspan(RoundUp(key.size(), kRowAlignment));
  }
  return batch;
}

}  // namespace headrace
