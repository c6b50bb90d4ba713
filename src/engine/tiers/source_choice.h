#pragma once

#include <cstdint>
#include <optional>

#include "engine/batch/stored_fields.h"
#include "engine/tiers/tier_cache.h"
#include "fetch/fetch.h"
#include "headrace/ids.h"
#include "model/source_times.h"
#include "tier/tier.h"

namespace headrace {

// Chooses the fastest source that has a sample: a tier of this node, another node, storage. Follows
// a model; without one prefers a tier to another node, and that to storage. The choice does not
// change which bytes are delivered.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
class SourceChoice {
 public:
  // `model` null: there is none.
  SourceChoice(const MachineModel* model, const TierCache& cache, const StoredFields& fields);

  [[nodiscard]] bool by_model() const { return times_.has_value(); }

  // Where to take a sample of the step that was planned from. `entry`: in a tier of this node;
  // empty: it is not there. `asks`: whether other nodes may be asked. Before TierCache::Advance().
  struct Sources {
    bool tier = true;              // a tier of this node, for what it has
    std::optional<Holders> nodes;  // these for the rest; nothing: storage
  };
  [[nodiscard]] Sources Choose(SampleId sample, const Tier::EntryRef& entry, bool asks);

  // The same for the `samples` samples of a block read, which storage gives in reads of up to
  // `read_bytes_max`: one choice for all of them, as the plan has them in one tier; by the first.
  [[nodiscard]] Sources ChooseForBlock(const BlockRead& block, std::uint32_t samples,
                                       std::uint64_t read_bytes_max, bool asks);

  // Whether storage gives a sample of `bytes` faster than the tier of another node. By the newest
  // step of which Choose() was asked.
  [[nodiscard]] bool StorageIsFaster(TierNumber node_tier, std::uint64_t bytes) const;

 private:
  [[nodiscard]] static std::optional<BlockHolder> PeerOf(const PlannedHolders& holders, bool there,
                                                         bool asks);
  [[nodiscard]] Sources Choose(SampleRead read, const std::optional<BlockHolder>& peer,
                               const PlannedHolders& holders);

  const TierCache& cache_;
  const StoredFields& fields_;
  std::optional<SourceTimes> times_;
};

}  // namespace headrace
