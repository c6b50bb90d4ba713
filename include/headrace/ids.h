#pragma once

// Identifiers, byte ranges and codings that every layer shares. Each id is a type of its own, so
// that a sample cannot be passed as an object. Plain values.

#include <cstdint>

#include "headrace/members.h"

namespace headrace {

// A sample of a dataset: [0, Index::sample_count()), in the order of the index.
enum class SampleId : std::uint64_t {};

// A file or remote blob of a dataset: [0, Index::object_count()).
enum class ObjectId : std::uint64_t {};

// The number of a node among those of the job: [0, nodes).
using NodeNumber = std::uint32_t;

// No node, in a place for the number of one.
inline constexpr NodeNumber kNoNode = 0xffff'ffff;

// Position of a tier in its node's list, fastest first.
using TierNumber = std::uint8_t;

inline constexpr TierNumber kNoTier = 0xff;  // storage, or not kept
// Where a sample came from, in Batch::sources, if it was another node.
inline constexpr TierNumber kFromNode = 0xfe;

// How bytes are compressed. Index files contain these numbers.
enum class Coding : std::uint8_t {
  kStored = 0,   // not compressed
  kZstd = 1,     // zstd frames, end to end
  kZlib = 2,     // a deflate stream with the header and checksum of zlib
  kDeflate = 3,  // a deflate stream alone
  kSnappy = 4,   // a snappy block, without a frame
  kGzip = 5,     // gzip members, end to end
};
inline constexpr Coding kCodingLast = Coding::kGzip;

constexpr std::uint64_t Raw(SampleId id) { return static_cast<std::uint64_t>(id); }
constexpr std::uint64_t Raw(ObjectId id) { return static_cast<std::uint64_t>(id); }

// A range of bytes of an object.
struct ByteRange {
  std::uint64_t offset = 0;  // bytes from the start of the object
  std::uint64_t size = 0;    // bytes

  [[nodiscard]] constexpr std::uint64_t end() const { return offset + size; }
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};
HEADRACE_MEMBERS(ByteRange, offset, size)

// An object and a range of it.
struct Extent {
  ObjectId object{};
  ByteRange range;

  friend constexpr bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace headrace
