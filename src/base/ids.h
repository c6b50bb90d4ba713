#pragma once

// Identifiers and byte ranges that every layer shares. Each id is a type of its own, so that a
// sample cannot be passed as an object.

#include <cstdint>

namespace headrace {

// A sample of a dataset: [0, Index::sample_count()), in the order of the index.
enum class SampleId : std::uint64_t {};

// A file or remote blob of a dataset: [0, Index::object_count()).
enum class ObjectId : std::uint64_t {};

// The number of a node among those of the job: [0, nodes).
using NodeNumber = std::uint32_t;

// No node: where a number may name one, and nobody is meant.
inline constexpr NodeNumber kNoNode = 0xffff'ffff;

constexpr std::uint64_t Raw(SampleId id) { return static_cast<std::uint64_t>(id); }
constexpr std::uint64_t Raw(ObjectId id) { return static_cast<std::uint64_t>(id); }

// A range of bytes of an object.
struct ByteRange {
  std::uint64_t offset = 0;  // bytes from the start of the object
  std::uint64_t size = 0;    // bytes

  [[nodiscard]] constexpr std::uint64_t end() const { return offset + size; }
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

// An object and a range of it.
struct Extent {
  ObjectId object{};
  ByteRange range;

  friend constexpr bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace headrace
