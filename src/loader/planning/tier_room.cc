#include "loader/planning/tier_room.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"
#include "headrace/index.h"
#include "loader/config/resolved_order.h"

namespace headrace {
namespace {

// All tiers of a node count in the same units, those of the coarsest.
constexpr std::uint64_t kUnitBytesOnDisk = 4096;
constexpr std::uint64_t kUnitBytesInMemory = 64;
constexpr std::uint64_t kUnitsMax = 0xffff'ffff;  // Of one tier; larger ones have larger units.

// Every node plans what all of them keep: they must agree on which ranks are where.
Status CheckNode(const OrderOptions& job) {
  if (job.rank % job.ranks == 0 && job.world_size % job.ranks == 0) return Status();
  return InvalidArgument(
      "tiers: this node has {} from rank {} on, of a world_size of {}: with tiers all nodes must "
      "have the same number of ranks; start the same number on each, or leave tiers out",
      Counted(job.ranks, "rank"), job.rank, job.world_size);
}

// Pixels take more units of 64 bytes than there need be: each costs memory, and time.
constexpr std::uint64_t kUnitsOfPixels = 64;  // of an image of average size, at least

// Bytes of each sample's entry in a tier that holds images decoded.
//
// Errors: those of Index::extent()
Result<std::vector<std::uint64_t>> DecodedEntryBytes(const Index& index, const TiersSpec& spec) {
  const std::vector<std::uint32_t>& images = *spec.decoded_images;
  const auto found = std::ranges::find(index.fields(), spec.decoded_field, &FieldInfo::name);
  if (found == index.fields().end() || images.size() != index.sample_count()) {
    return InvalidArgument("tiers of decoded images: {} of field '{}', must be {} of one that is",
                           Counted(images.size(), "size"), spec.decoded_field,
                           index.sample_count());
  }
  const auto field = static_cast<std::size_t>(found - index.fields().begin());
  std::vector<std::uint64_t> bytes(images.size());
  index.SampleBytes(SampleId{0}, bytes);
  for (std::size_t sample = 0; sample < bytes.size(); ++sample) {
    if (images[sample] == 0) continue;
    HEADRACE_ASSIGN_OR_RETURN(const Extent stored, index.extent(field, SampleId{sample}));
    bytes[sample] = bytes[sample] - stored.range.size + images[sample];
  }
  return bytes;
}

// The largest power of two up to 4096 of which a sample of average size takes kUnitsOfPixels.
std::uint64_t UnitBytesOf(const std::vector<std::uint64_t>& sample_bytes) {
  const std::uint64_t sum =
      std::accumulate(sample_bytes.begin(), sample_bytes.end(), std::uint64_t{0});
  const std::uint64_t mean = sum / std::max<std::size_t>(sample_bytes.size(), 1);
  return std::bit_floor(std::clamp(mean / kUnitsOfPixels, kUnitBytesInMemory, kUnitBytesOnDisk));
}

}  // namespace

Result<TierRoom> MakeTierRoom(const std::shared_ptr<const Index>& index, const TiersSpec& spec,
                              const ResolvedOrder& order) {
  if (spec.tiers.empty() || spec.tiers.size() > kTiersMax) {
    return InvalidArgument("tiers: got {} of them, must be 1 to {}", spec.tiers.size(), kTiersMax);
  }
  HEADRACE_RETURN_IF_ERROR(CheckNode(order.job()));
  std::uint64_t unit_bytes = kUnitBytesInMemory;
  std::vector<std::uint64_t> decoded;
  if (spec.decoded_images != nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(decoded, DecodedEntryBytes(*index, spec));
    unit_bytes = UnitBytesOf(decoded);
  }
  for (const TierSpec& tier : spec.tiers) {
    if (!tier.path.empty()) unit_bytes = std::max(unit_bytes, kUnitBytesOnDisk);
    while (tier.capacity_bytes / unit_bytes >= kUnitsMax) unit_bytes *= 2;
  }
  TierRoom room;
  if (spec.decoded_images != nullptr) {
    room.blocks = MakeSampleBlocks(decoded, unit_bytes);
  } else {
    HEADRACE_ASSIGN_OR_RETURN(room.blocks, order.CacheBlocks(index, unit_bytes));
  }
  for (const TierSpec& tier : spec.tiers) {
    room.capacity_units.push_back(tier.capacity_bytes / room.blocks->unit_bytes());
  }
  return room;
}

PlacementRequest MakePlacementRequest(const std::shared_ptr<const ResolvedOrder>& order,
                                      const TierRoom& room, std::uint64_t horizon_epochs,
                                      Position start) {
  const OrderOptions& job = order->job();
  PlacementRequest request{.blocks = room.blocks, .node = job.rank / job.ranks};
  request.capacity_units.assign(job.world_size / job.ranks, room.capacity_units);
  request.horizon_epochs = std::min(horizon_epochs, job.epochs);
  request.seed = job.seed;
  request.uses = [order, blocks = room.blocks, start] { return order->MakeUses(blocks, start); };
  return request;
}

}  // namespace headrace
