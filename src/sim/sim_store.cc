#include "sim/sim_store.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace headrace {

SimStore::SimStore(SimLoop& loop, ByteStore& bytes, std::function<SimRead(const Extent&)> decide)
    : loop_(loop), bytes_(bytes), decide_(std::move(decide)) {
  stats_.name = "simulated";
}

SimStore::~SimStore() { HEADRACE_CHECK(in_flight_ == 0); }

std::size_t SimStore::BufferBytes(ByteRange range) const {
  return bytes_.BufferBytes(range) + kShiftBytesMax;
}

void SimStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (ReadRequest& request : requests) {
    const SimRead read = decide_(request.extent);
    HEADRACE_CHECK(read.shift_bytes <= kShiftBytesMax);
    if (request.looked) ++reads_looked_;
    in_flight_peak_ = std::max(in_flight_peak_, ++in_flight_);
    auto shared = std::make_shared<ReadRequest>(std::move(request));
    loop_.After(read.delay_ns, [this, shared, read, stop] { Finish(*shared, read, stop); });
  }
}

ReadNowAnswer SimStore::ReadNow(const Extent& extent, std::span<std::byte> dst) {
  if (!now_()) return ReadNowAnswer::kNotHeld;
  if (found_ != ReadNowAnswer::kRead) return found_;
  if (decide_(extent).error.has_value()) return ReadNowAnswer::kNotAsked;
  std::vector<std::byte> bytes(BufferBytes(extent.range) + kBufferAlignment);
  void* start = bytes.data();
  std::size_t space = bytes.size();
  std::align(kBufferAlignment, BufferBytes(extent.range), start, space);
  bool read = false;
  std::vector<ReadRequest> requests;
  requests.push_back({.extent = extent,
                      .buffer = {static_cast<std::byte*>(start), BufferBytes(extent.range)},
                      .done = [&](Result<std::span<std::byte>> data) {
                        read = data.ok();
                        if (read) std::copy(data.value().begin(), data.value().end(), dst.begin());
                      }});
  bytes_.Read(std::move(requests), {});
  return read ? ReadNowAnswer::kRead : ReadNowAnswer::kNotAsked;
}

void SimStore::Finish(ReadRequest& request, const SimRead& read, const std::stop_token& stop) {
  --in_flight_;
  ++stats_.reads;
  std::optional<Result<std::span<std::byte>>> result;
  if (read.error.has_value()) {
    result = Result<std::span<std::byte>>(*read.error);
  } else {
    std::vector<ReadRequest> inner;
    inner.push_back(
        {.extent = request.extent,
         .buffer = request.buffer,
         .done = [&result](const Result<std::span<std::byte>>& data) { result = data; }});
    bytes_.Read(std::move(inner), stop);
  }
  HEADRACE_CHECK(result.has_value());  // `bytes_` answers inside Read().
  if (result->ok()) {
    const std::span<std::byte> data = result->value();
    const std::span<std::byte> shifted = request.buffer.subspan(read.shift_bytes, data.size());
    if (!data.empty()) std::memmove(shifted.data(), data.data(), data.size());
    result = shifted;
    stats_.bytes += result->value().size();
  } else {
    ++stats_.failures;
  }
  request.done(*std::move(result));
}

}  // namespace headrace
