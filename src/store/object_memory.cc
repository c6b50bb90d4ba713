#include "store/object_memory.h"

#include <algorithm>

namespace headrace {

void DecodedMemory::Add(const ObjectMemory& object) {
  largest_.kept_bytes = std::max(largest_.kept_bytes, object.kept_bytes);
  largest_.decode_bytes = std::max(largest_.decode_bytes, object.decode_bytes);
  all_.kept_bytes += object.kept_bytes;
  all_.decode_bytes += object.decode_bytes;
}

DecodedLimits DecodedMemory::most() const {
  const DecodedLimits useful;
  return {.kept_bytes_max =
              std::max(largest_.kept_bytes, std::min(useful.kept_bytes_max, all_.kept_bytes)),
          .decoding_bytes_max = std::max(largest_.decode_bytes,
                                         std::min(useful.decoding_bytes_max, all_.decode_bytes))};
}

std::uint64_t DecodedMemory::useful() const {
  return most().kept_bytes_max + most().decoding_bytes_max;
}

DecodedLimits DecodedMemory::Divide(std::uint64_t bytes) const {
  const std::uint64_t decoding =
      std::clamp(bytes / 3, largest_.decode_bytes, most().decoding_bytes_max);
  const std::uint64_t left = bytes - std::min(bytes, decoding);
  const std::uint64_t kept = std::clamp(left, largest_.kept_bytes, most().kept_bytes_max);
  return {.kept_bytes_max = kept,
          .decoding_bytes_max = std::clamp(bytes - std::min(bytes, kept), largest_.decode_bytes,
                                           most().decoding_bytes_max)};
}

}  // namespace headrace
