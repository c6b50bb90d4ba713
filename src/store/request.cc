#include "store/request.h"

#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {

std::string Doing(std::string_view what, ByteRange range) {
  return fmt::format("reading {} bytes [{}, {})", what, range.offset, range.end());
}

std::string ObjectName(ObjectId object) { return "object " + std::to_string(Raw(object)); }

Status CheckRange(ByteRange range, std::uint64_t object_bytes) {
  if (range.offset <= object_bytes && range.size <= object_bytes - range.offset) return Status();
  return Status(StatusCode::kOutOfRange, "object has " + Counted(object_bytes, "byte"));
}

WidenedRange Widen(ByteRange range, std::uint64_t alignment) {
  const std::uint64_t lead = range.offset % alignment;
  WidenedRange widened;
  widened.blocks.offset = range.offset - lead;
  widened.blocks.size = RoundUp(lead + range.size, alignment);
  widened.lead = lead;
  widened.needed = lead + range.size;
  return widened;
}

void StoreCounters::Answer(ReadRequest& request, Result<std::span<std::byte>> result) {
  ++reads_;
  if (result.ok()) {
    HEADRACE_CHECK(result.value().size() == request.extent.range.size);
    bytes_ += result.value().size();
  } else if (result.status().code() != StatusCode::kCancelled) {
    ++failures_;
  }
  request.done(std::move(result));
}

std::pair<std::uint64_t, std::uint64_t> StoreCounters::AddAllNow(std::span<const NowRead> reads) {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  for (const NowRead& read : reads) {
    if (read.answer != ReadNowAnswer::kRead) continue;
    ++count;
    bytes += read.dst.size();
  }
  if (count > 0) AddNow(bytes, count);
  return {count, bytes};
}

StoreStats StoreCounters::Snapshot(std::string name, std::string note) const {
  StoreStats stats;
  stats.name = std::move(name);
  stats.note = std::move(note);
  stats.reads = reads_;
  stats.bytes = bytes_;
  stats.bytes_direct = bytes_direct_;
  stats.bytes_page_cache = bytes_page_cache_;
  stats.retries = retries_;
  stats.failures = failures_;
  return stats;
}

void CheckBuffer(const ReadRequest& request, std::size_t bytes_min) {
  HEADRACE_CHECK(request.buffer.size() >= bytes_min);
  HEADRACE_CHECK(reinterpret_cast<std::uintptr_t>(request.buffer.data()) % kBufferAlignment == 0);
}

}  // namespace headrace
