#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.h"
#include "papers/lobster/schedule_file.h"

namespace headrace {

inline constexpr std::size_t kScheduleHeaderBytes = 96;  // before its checksum

// A sink that appends to `file`, which must outlive it.
inline ScheduleWriter::Sink Into(std::vector<std::byte>& file) {
  return [&file](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return Status();
  };
}

// Corrects the checksums, as far as records can be told apart.
inline void Reseal(std::vector<std::byte>& file) {
  if (file.size() < kScheduleHeaderBytes + 8) return;
  std::uint64_t digest = Hash64(std::span(file).first(kScheduleHeaderBytes));
  std::memcpy(file.data() + kScheduleHeaderBytes, &digest, sizeof digest);
  std::size_t at = kScheduleHeaderBytes + 8;
  while (file.size() - at >= 12) {
    std::uint32_t size = 0;
    std::memcpy(&size, file.data() + at, sizeof size);
    if (size > file.size() - at - 12) return;
    Hasher64 hasher;
    hasher.Add(std::as_bytes(std::span(&digest, 1)));
    hasher.Add(std::span(file).subspan(at, 4 + size));
    digest = hasher.Digest();
    std::memcpy(file.data() + at + 4 + size, &digest, sizeof digest);
    at += 12 + size;
  }
}

}  // namespace headrace
