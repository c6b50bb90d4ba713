#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/published/place_set.h"
#include "sim/published/policy.h"

namespace headrace {

// The tiers of a node as one cache. A sample in it is known by a place of the node's stream where
// it is used: LRU has that of its last use and evicts the first place, Belady that of its next use
// and evicts the last one.
//
// What a tier evicts goes to the next tier, the last tier's is gone. A sample that is larger than a
// tier skips it.
//
// Thread safety: none.
// Memory: an eighth of a byte a place and tier.
class NodeCache {
 public:
  enum class Evicts : std::uint8_t { kFirst, kLast };

  // The job and the stream outlive it.
  NodeCache(const SimulatedJob& job, std::span<const std::uint32_t> stream, Evicts evicts);

  // Takes out the sample known by `place`, and returns its tier; std::nullopt: it is not there.
  std::optional<std::size_t> Take(std::uint64_t place);

  // Puts in the sample that is used at `place`, which no one there is known by.
  void Keep(std::uint64_t place) { KeepFrom(0, place); }

 private:
  struct Tier {
    double bytes = 0;
    double used_bytes = 0;
    PlaceSet places;
  };

  void KeepFrom(std::size_t tier, std::uint64_t place);
  void Erase(Tier& tier, std::uint64_t place) const;

  const SimulatedJob& job_;
  const std::span<const std::uint32_t> stream_;
  const Evicts evicts_;
  std::vector<Tier> tiers_;
};

// Nodes keep what they read, the least recently used goes: the page cache.
std::unique_ptr<PublishedPolicy> MakePublishedLru(const PolicyRequest& request);

// The same, but the sample goes that the node uses last (L. A. Belady, 1966).
std::unique_ptr<PublishedPolicy> MakePublishedBelady(const PolicyRequest& request);

// CoorDL: its MinIO cache, which evicts nothing, partitioned among the nodes.
std::unique_ptr<PublishedPolicy> MakePublishedCoordl(const PolicyRequest& request);

}  // namespace headrace
