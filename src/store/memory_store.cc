#include "store/memory_store.h"

#include <algorithm>
#include <utility>

namespace headrace {

MemoryStore::MemoryStore(std::unordered_map<ObjectId, std::string> objects)
    : objects_(std::move(objects)) {}

void MemoryStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (ReadRequest& request : requests) {
    const Extent& extent = request.extent;
    CheckBuffer(request, BufferBytes(extent.range));
    Result<std::span<std::byte>> result =
        stop.stop_requested() ? Status(StatusCode::kCancelled, "stop requested") : Copy(request);
    if (!result.ok()) {
      result = result.status().WithContext(Doing(ObjectName(extent.object), extent.range));
    }
    counters_.Answer(request, std::move(result));
  }
}

Result<std::span<std::byte>> MemoryStore::Copy(const ReadRequest& request) const {
  const Extent& extent = request.extent;
  const auto found = objects_.find(extent.object);
  if (found == objects_.end()) return Status(StatusCode::kNotFound, "no such object");
  const std::span<const std::byte> object = std::as_bytes(std::span(found->second));
  HEADRACE_RETURN_IF_ERROR(CheckRange(extent.range, object.size()));
  const auto source = object.subspan(extent.range.offset, extent.range.size);
  std::copy(source.begin(), source.end(), request.buffer.begin());
  return request.buffer.first(source.size());
}

}  // namespace headrace
