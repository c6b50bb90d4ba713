#include "workers/batch_place.h"

#include <cstdint>
#include <memory>
#include <optional>

#include "base/check.h"
#include "engine/batch/batch_memory.h"

namespace headrace {

namespace {

// Memory that ends where another begins has only the empty row there.
bool Holds(std::span<const std::byte> bytes, std::span<const std::byte> row) {
  return row.data() >= bytes.data() && row.data() + row.size() <= bytes.data() + bytes.size();
}

}  // namespace

BufferPlace PlaceOfRow(const Batch& batch, std::span<const std::byte> row) {
  const auto place_in = [&](const Buffer& buffer) -> std::optional<BufferPlace> {
    const std::span<std::byte> bytes = buffer.bytes();
    if (bytes.empty() || !Holds(bytes, row)) return std::nullopt;
    const BufferPlace& place = buffer.place();
    HEADRACE_CHECK(place.memory != nullptr);
    return BufferPlace{
        .memory = place.memory,
        .offset = place.offset + static_cast<std::uint64_t>(row.data() - bytes.data())};
  };
  HEADRACE_CHECK(batch.memory != nullptr || row.empty());
  if (batch.memory == nullptr) return {};
  if (const auto place = place_in(batch.memory->rows)) return *place;
  for (const Buffer& buffer : batch.memory->extra) {
    if (const auto place = place_in(buffer)) return *place;
  }
  for (const std::shared_ptr<SharedMemory>& memory : batch.memory->mapped) {
    const std::span<std::byte> bytes = memory->bytes();
    if (!Holds(bytes, row)) continue;
    return {.memory = memory, .offset = static_cast<std::uint64_t>(row.data() - bytes.data())};
  }
  HEADRACE_CHECK(row.empty());
  const auto& mapped = batch.memory->mapped;
  return mapped.empty() ? batch.memory->rows.place()
                        : BufferPlace{.memory = mapped.front(), .offset = 0};
}

}  // namespace headrace
