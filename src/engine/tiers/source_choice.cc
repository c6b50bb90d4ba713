#include "engine/tiers/source_choice.h"

#include <algorithm>

namespace headrace {
namespace {

std::uint64_t BytesOf(const StoredFields& fields, SampleId sample) {
  std::uint64_t bytes = 0;
  const Status status = fields.VisitExtents(
      sample, [&](std::uint32_t /*field*/, const Extent& extent) { bytes += extent.range.size; });
  return status.ok() ? bytes : 0;  // Else the read of the sample reports it.
}

}  // namespace

SourceChoice::SourceChoice(const MachineModel* model, const TierCache& cache,
                           const StoredFields& fields)
    : cache_(cache), fields_(fields) {
  if (model != nullptr) times_.emplace(*model);
}

SourceChoice::Sources SourceChoice::Choose(SampleId sample, const Tier::EntryRef& entry,
                                           bool asks) {
  PlannedHolders holders;
  if (by_model() || (asks && !entry)) holders = cache_.HoldersOf(sample);
  if (!by_model()) return {.nodes = holders.nodes};
  const std::optional<BlockHolder> peer = PeerOf(holders, static_cast<bool>(entry), asks);
  if (!entry && !peer.has_value()) return {};
  SampleRead read;
  if (entry) read.tier = cache_.NumberOf(entry.tier());
  read.bytes = static_cast<double>(entry ? entry.bytes() : BytesOf(fields_, sample));
  return Choose(read, peer, holders);
}

SourceChoice::Sources SourceChoice::ChooseForBlock(const BlockRead& block, std::uint32_t samples,
                                                   std::uint64_t read_bytes_max, bool asks) {
  if (!asks && !by_model()) return {};
  const SampleId first = KeptSampleId(block, 0);
  Tier* const tier = cache_.Wanted(first);
  const bool there = tier != nullptr && tier->Find(first);
  PlannedHolders holders;
  if (by_model() || !there) holders = cache_.HoldersOf(first);
  if (!by_model()) return {.nodes = holders.nodes};
  const std::optional<BlockHolder> peer = PeerOf(holders, there, asks);
  if (!there && !peer.has_value()) return {};
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < samples; ++i) {
    bytes += BytesOf(fields_, KeptSampleId(block, i));
  }
  SampleRead read;
  if (there) read.tier = cache_.NumberOf(tier);
  read.bytes = static_cast<double>(bytes) / samples;
  read.storage_bytes = static_cast<double>(std::min(bytes, read_bytes_max));
  return Choose(read, peer, holders);
}

// Which other node to compare with; nothing: none.
std::optional<BlockHolder> SourceChoice::PeerOf(const PlannedHolders& holders, bool there,
                                                bool asks) {
  if (!asks) return std::nullopt;
  if (there) return holders.copy;
  if (!holders.nodes.has_value()) return std::nullopt;
  return BlockHolder{.node = holders.nodes->first, .tier = holders.tier};
}

SourceChoice::Sources SourceChoice::Choose(SampleRead read, const std::optional<BlockHolder>& peer,
                                           const PlannedHolders& holders) {
  times_->SetStorageNodes(holders.storage_readers);
  if (peer.has_value()) read.peer = peer->tier;
  const Source::Kind fastest = times_->Fastest(read);
  Sources sources{.tier = !read.tier.has_value() || fastest == Source::Kind::kTier, .nodes = {}};
  if (fastest == Source::Kind::kPeer) {
    sources.nodes = read.tier.has_value() ? Holders{.first = peer->node} : holders.nodes;
  }
  return sources;
}

bool SourceChoice::StorageIsFaster(TierNumber node_tier, std::uint64_t bytes) const {
  if (!by_model()) return false;
  const SampleRead read{.bytes = static_cast<double>(bytes), .peer = node_tier};
  return times_->Fastest(read) == Source::Kind::kStorage;
}

}  // namespace headrace
