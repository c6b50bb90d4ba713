#pragma once

// Messages and counters shared by tiers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

using TierParts = std::vector<std::span<const std::byte>>;

inline std::uint64_t BytesOf(const TierParts& parts) {
  std::uint64_t bytes = 0;
  for (const std::span<const std::byte> part : parts) bytes += part.size();
  return bytes;
}

inline std::string SampleText(SampleId sample) { return "sample " + std::to_string(Raw(sample)); }

inline Status NoRoom(SampleId sample, std::uint64_t bytes, std::uint64_t free_bytes) {
  return Status(StatusCode::kResourceExhausted, "keeping " + SampleText(sample) + ": it takes " +
                                                    FormatBytes(bytes) + ", " +
                                                    FormatBytes(free_bytes) + " are free");
}

inline Status Changed(SampleId sample, std::uint64_t bytes) {
  return Status(StatusCode::kDataLoss, "reading " + SampleText(sample) + ", " + FormatBytes(bytes) +
                                           ": checksum mismatch: the bytes have changed");
}

inline Status ReadStopped(SampleId sample) {
  return Status(StatusCode::kCancelled, "reading " + SampleText(sample) + ": stop requested");
}

}  // namespace headrace
