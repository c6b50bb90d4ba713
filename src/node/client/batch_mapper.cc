#include "node/client/batch_mapper.h"
#include "base/format/errors.h"

#include <string>
#include <utility>

namespace headrace {

Status WrongMessage(const std::string& what) {
  return Status(StatusCode::kDataLoss, "a message of the node process: " + what);
}

Status BatchMapper::Add(const NewMemory& memory, IpcMessage& message) {
  if (message.fds.size() != 1) {
    return WrongMessage("a memory with " + std::to_string(message.fds.size()) + " descriptors");
  }
  HEADRACE_ASSIGN_OR_RETURN(auto mapped,
                            SharedMemory::Map(std::move(message.fds.front()), memory.bytes));
  memories_[memory.memory] = std::move(mapped);
  if (memory.apart) apart_.insert(memory.memory);
  return Status();
}

Result<std::span<std::byte>> BatchMapper::Find(const BytesPlace& place, Used& used) const {
  if (place.size == 0) return std::span<std::byte>();
  const auto found = memories_.find(place.memory);
  if (found == memories_.end()) {
    return WrongMessage("memory " + std::to_string(place.memory) + " is unknown");
  }
  const std::span<std::byte> bytes = found->second->bytes();
  if (place.offset > bytes.size() || place.size > bytes.size() - place.offset) {
    return WrongMessage(
        fmt::format("bytes [{}, +{}) of a memory of {}", place.offset, place.size, bytes.size()));
  }
  used.insert(found->second);
  return bytes.subspan(place.offset, place.size);
}

Result<std::shared_ptr<Batch>> BatchMapper::Map(BatchReady ready,
                                                std::span<const BatchField> schema) {
  auto batch = std::make_shared<Batch>();
  const std::size_t rows = ready.samples.size();
  if (ready.fields.size() != schema.size()) return WrongMessage("a batch of other fields");
  Used used;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    BatchRows& field = batch->fields.emplace_back();
    const std::vector<BytesPlace>& places = ready.fields[i];
    if (places.size() != (schema[i].ragged ? rows : 1)) {
      return WrongMessage("a batch of other rows");
    }
    for (const BytesPlace& place : places) {
      HEADRACE_ASSIGN_OR_RETURN(field.rows.emplace_back(), Find(place, used));
    }
    if (schema[i].ragged) continue;
    field.packed = field.rows.front();
    field.rows.clear();
    if (rows > 0 &&
        (field.packed.size() % rows != 0 || field.packed.size() / rows != schema[i].row_bytes)) {
      return WrongMessage("rows of " + std::to_string(field.packed.size()) + " bytes together");
    }
  }
  for (const std::uint32_t memory : apart_) memories_.erase(memory);
  apart_.clear();
  batch->epoch = ready.epoch;
  batch->step = ready.step;
  batch->ends_epoch = ready.ends_epoch;
  batch->beyond_budget = ready.beyond_budget;
  batch->times = ready.times;
  batch->samples = std::move(ready.samples);
  batch->substitutions = std::move(ready.substitutions);
  batch->sources = std::move(ready.sources);
  batch->mapped = {used.begin(), used.end()};
  return batch;
}

}  // namespace headrace
