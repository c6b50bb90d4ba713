#include "node/client/batch_mapper.h"
#include "base/format/errors.h"
#include "engine/batch/batch_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace headrace {

Status WrongMessage(const std::string& what) {
  return DataLoss("reading a message of the node process: {}; report this defect of headrace",
                  what);
}

Status BatchMapper::Add(const NewMemory& memory, IpcMessage& message) {
  if (message.fds.size() != 1) {
    return WrongMessage(
        fmt::format("a new memory with {} descriptors, must be 1", message.fds.size()));
  }
  HEADRACE_ASSIGN_OR_RETURN(auto mapped,
                            SharedMemory::Map(std::move(message.fds.front()), memory.bytes));
  memories_[memory.memory] = std::move(mapped);
  if (memory.dedicated) dedicated_.insert(memory.memory);
  return Status();
}

Result<std::span<std::byte>> BatchMapper::Find(const BytesPlace& place, Used& used) const {
  if (place.size == 0) return std::span<std::byte>();
  const auto found = memories_.find(place.memory);
  if (found == memories_.end()) {
    return WrongMessage(fmt::format("a batch lies in memory {}, which is unknown", place.memory));
  }
  const std::span<std::byte> bytes = found->second->bytes();
  if (place.offset > bytes.size() || place.size > bytes.size() - place.offset) {
    return WrongMessage(
        fmt::format("a batch takes {} bytes from byte {} on of memory {}, which has {} bytes",
                    place.size, place.offset, place.memory, bytes.size()));
  }
  used.insert(found->second);
  return bytes.subspan(place.offset, place.size);
}

Result<std::shared_ptr<Batch>> BatchMapper::Map(BatchReady ready,
                                                std::span<const BatchField> schema) {
  auto batch = std::make_shared<Batch>();
  const std::size_t rows = ready.samples.size();
  if (ready.fields.size() != schema.size()) {
    return WrongMessage(
        fmt::format("a batch has {} fields, the loader {}", ready.fields.size(), schema.size()));
  }
  Used used;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    BatchRows& field = batch->fields.emplace_back();
    const std::vector<BytesPlace>& places = ready.fields[i];
    if (places.size() != (schema[i].ragged ? rows : 1)) {
      return WrongMessage(fmt::format("a batch of {} rows has {} places of field {}", rows,
                                      places.size(), schema[i].name));
    }
    for (const BytesPlace& place : places) {
      HEADRACE_ASSIGN_OR_RETURN(field.rows.emplace_back(), Find(place, used));
    }
    if (schema[i].ragged) continue;
    field.packed = field.rows.front();
    field.rows.clear();
    if (rows > 0 &&
        (field.packed.size() % rows != 0 || field.packed.size() / rows != schema[i].row_bytes)) {
      return WrongMessage(fmt::format("{} rows of field {} have {} bytes, must be {} each", rows,
                                      schema[i].name, field.packed.size(), schema[i].row_bytes));
    }
  }
  for (const std::uint32_t memory : dedicated_) memories_.erase(memory);
  dedicated_.clear();
  batch->epoch = ready.epoch;
  batch->step = ready.step;
  batch->ends_epoch = ready.ends_epoch;
  batch->beyond_budget = ready.beyond_budget;
  batch->times = ready.times;
  batch->samples = std::move(ready.samples);
  batch->substitutions = std::move(ready.substitutions);
  batch->sources = std::move(ready.sources);
  batch->memory = std::make_shared<BatchMemory>();
  batch->memory->mapped = {used.begin(), used.end()};
  return batch;
}

Status OwnRows(Batch& batch) {
  const auto room = [](std::span<const std::byte> row) {
    return (row.size() + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  };
  std::uint64_t bytes = 0;
  for (const BatchRows& field : batch.fields) {
    bytes += room(field.packed);
    for (const std::span<std::byte> row : field.rows) bytes += room(row);
  }
  // Not std::vector: it would write zeros first.
  std::shared_ptr<std::byte> own(
      static_cast<std::byte*>(std::aligned_alloc(kRowAlignment, std::max(bytes, kRowAlignment))),
      [](std::byte* memory) { std::free(memory); });
  if (own == nullptr) {
    return ResourceExhausted("copying a batch that other ranks share: no memory of {} bytes",
                             bytes);
  }
  std::byte* next = own.get();
  const auto copy = [&](std::span<std::byte>& row) {
    if (row.empty()) return;
    std::memcpy(next, row.data(), row.size());
    const std::span<std::byte> copied(next, row.size());
    next += room(row);
    row = copied;
  };
  for (BatchRows& field : batch.fields) {
    copy(field.packed);
    for (std::span<std::byte>& row : field.rows) copy(row);
  }
  batch.memory->mapped.clear();
  batch.memory->lease = std::move(own);
  return Status();
}

}  // namespace headrace
