#include "ipc/wire.h"

#include <limits>
#include <utility>

namespace headrace {
namespace {

// Every code of base/status.h.
bool IsStatusCode(std::uint8_t code) {
  switch (static_cast<StatusCode>(code)) {
    case StatusCode::kOk:
    case StatusCode::kCancelled:
    case StatusCode::kInvalidArgument:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kNotFound:
    case StatusCode::kResourceExhausted:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
    case StatusCode::kInternal:
    case StatusCode::kUnavailable:
    case StatusCode::kDataLoss:
      return true;
  }
  return false;
}

}  // namespace

void WireWriter::PutCount(std::size_t count) {
  HEADRACE_CHECK(count <= std::numeric_limits<std::uint32_t>::max());
  PutU32(static_cast<std::uint32_t>(count));
}

void WireWriter::PutBytes(std::span<const std::byte> bytes) {
  PutCount(bytes.size());
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void WireWriter::PutStatus(const Status& status) {
  PutU8(static_cast<std::uint8_t>(status.code()));
  PutString(status.message());
}

std::span<const std::byte> WireReader::Next(std::size_t bytes) {
  if (!status_.ok()) return {};
  if (bytes > remaining_bytes()) {
    Refuse(std::to_string(bytes) + " bytes expected, " + std::to_string(remaining_bytes()) +
           " are left");
    return {};
  }
  const std::span<const std::byte> next = bytes_.subspan(at_, bytes);
  at_ += bytes;
  return next;
}

bool WireReader::TakeBool() {
  const std::uint8_t value = TakeU8();
  if (value > 1) Refuse("a boolean of " + std::to_string(value));
  return status_.ok() && value == 1;
}

std::uint32_t WireReader::TakeU32(std::uint32_t max) {
  const std::uint32_t value = TakeU32();
  if (value <= max) return value;
  Refuse("a number of " + std::to_string(value) + ", must be at most " + std::to_string(max));
  return 0;
}

std::size_t WireReader::TakeCount(std::size_t count_max, std::size_t element_bytes_min) {
  const std::size_t count = TakeU32();
  if (count > count_max) {
    Refuse("a count of " + std::to_string(count) + ", must be at most " +
           std::to_string(count_max));
    return 0;
  }
  if (element_bytes_min > 0 && count > remaining_bytes() / element_bytes_min) {
    Refuse("a count of " + std::to_string(count) + " of " + std::to_string(element_bytes_min) +
           " bytes or more, " + std::to_string(remaining_bytes()) + " bytes are left");
    return 0;
  }
  return count;
}

std::span<const std::byte> WireReader::TakeBytes(std::size_t bytes_max) {
  return Next(TakeCount(bytes_max, 1));
}

std::string WireReader::TakeString(std::size_t bytes_max) {
  const std::span<const std::byte> bytes = TakeBytes(bytes_max);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes are characters
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void WireReader::TakeStatus(Status& status, std::size_t bytes_max) {
  const std::uint8_t code = TakeU8();
  std::string message = TakeString(bytes_max);
  if (!IsStatusCode(code)) Refuse("a status of code " + std::to_string(code));
  status = status_.ok() && code != 0 ? Status(static_cast<StatusCode>(code), std::move(message))
                                     : Status();
}

void WireReader::Refuse(std::string_view why) {
  if (!status_.ok()) return;
  status_ = Status(StatusCode::kDataLoss,
                   "reading " + std::string(what_) + ", at byte " + std::to_string(at_) + " of " +
                       std::to_string(bytes_.size()) + ": " + std::string(why));
}

Status WireReader::Finish() {
  if (remaining_bytes() > 0) {
    Refuse(std::to_string(remaining_bytes()) + " bytes after the last value");
  }
  return status_;
}

}  // namespace headrace
