#pragma once

#include <cstdint>
#include <vector>

#include "base/members.h"

namespace headrace {

// What came out of one tier.
struct TierUses {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // of these
  std::uint64_t ahead = 0;  // of the samples: there because they were fetched ahead, and not used
                            // before: ready on time. All others are reuse.
};
HEADRACE_MEMBERS(TierUses, samples, bytes, ahead)

// How samples got around storage, and did not.
struct TierCounts {
  std::vector<TierUses> uses;        // by tier, fastest first
  std::uint64_t storage_uses = 0;    // samples that no tier had
  std::uint64_t waits = 0;           // samples waited for on their way into a tier
  std::uint64_t fetched_ahead = 0;   // samples read for a tier alone
  std::uint64_t moved = 0;           // from tier to tier
  std::uint64_t not_kept = 0;        // a tier would have them, and they did not get there
  std::uint64_t fallbacks = 0;       // a tier had them, and could not give them: read from storage
  std::uint64_t node_uses = 0;       // samples that another node gave, or was asked for
  std::uint64_t node_bytes = 0;      // of these
  std::uint64_t node_fallbacks = 0;  // of these, those it did not give: read from storage
  std::uint64_t brought = 0;         // samples read for a tier because another node asked for them
  // Samples that a faster source gave than ...
  std::uint64_t tiers_passed = 0;      // ... the tier of this node that has them
  std::uint64_t nodes_passed = 0;      // ... the other node that is to have them
  std::vector<std::uint64_t> planned;  // uses of blocks as planned, by tier and, last, elsewhere
};
HEADRACE_MEMBERS(TierCounts, uses, storage_uses, waits, fetched_ahead, moved, not_kept, fallbacks,
                 node_uses, node_bytes, node_fallbacks, brought, tiers_passed, nodes_passed,
                 planned)

}  // namespace headrace
