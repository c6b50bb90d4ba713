#include "ipc/wire.h"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "base/format/errors.h"

namespace headrace {
namespace {

// Every code of headrace/status.h.
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
    Refuse(fmt::format("{} bytes expected, {} are left", bytes, remaining_bytes()));
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
  Refuse(fmt::format("a number of {}, must be at most {}", value, max));
  return 0;
}

std::size_t WireReader::TakeCount(std::size_t count_max, std::size_t element_bytes_min) {
  const std::size_t count = TakeU32();
  if (count > count_max) {
    Refuse(fmt::format("a count of {}, must be at most {}", count, count_max));
    return 0;
  }
  if (element_bytes_min > 0 && count > remaining_bytes() / element_bytes_min) {
    Refuse(fmt::format("a count of {} of {} bytes or more, {} bytes are left", count,
                       element_bytes_min, remaining_bytes()));
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
  status_ = DataLoss("reading {}, at byte {} of {}: {}", what_, at_, bytes_.size(), why);
}

Status WireReader::Finish() {
  if (remaining_bytes() > 0) {
    Refuse(std::to_string(remaining_bytes()) + " bytes after the last value");
  }
  return status_;
}

}  // namespace headrace
