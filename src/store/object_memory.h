#pragma once

#include <cstdint>

namespace headrace {

// What one object takes in a store that decodes objects as a whole.
struct ObjectMemory {
  std::uint64_t kept_bytes = 0;    // to keep what it decodes to
  std::uint64_t decode_bytes = 0;  // to decode it: what it decodes to, and what the decoder needs
};

// Limits of such a store. One object is kept, and one decoded, whatever its size.
struct DecodedLimits {
  std::uint64_t kept_bytes_max = std::uint64_t{256} << 20;
  std::uint64_t decoding_bytes_max = std::uint64_t{128} << 20;
};

// The memory that such a store needs for the objects of a dataset. Pure.
class DecodedMemory {
 public:
  void Add(const ObjectMemory& object);

  // Enough to keep the largest object while another is decoded; 0 if there are no objects.
  [[nodiscard]] std::uint64_t least() const { return largest_.kept_bytes + largest_.decode_bytes; }
  // The most that helps: what DecodedLimits() allow, or all objects if that is less; never below
  // least().
  [[nodiscard]] std::uint64_t useful() const;

  // The limits of a store that has `bytes`, of least() to useful().
  [[nodiscard]] DecodedLimits Divide(std::uint64_t bytes) const;

 private:
  [[nodiscard]] DecodedLimits most() const;

  ObjectMemory largest_;  // of each, the largest
  ObjectMemory all_;
};

}  // namespace headrace
