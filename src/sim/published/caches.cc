#include "sim/published/caches.h"

#include <limits>
#include <utility>

namespace headrace {

NodeCache::NodeCache(const SimulatedJob& job, std::span<const std::uint32_t> stream, Evicts evicts)
    : job_(job), stream_(stream), evicts_(evicts) {
  for (const Cluster::Tier& tier : job.cluster.tiers) {
    tiers_.push_back({.bytes = tier.bytes, .places = PlaceSet(stream.size())});
  }
}

std::optional<std::size_t> NodeCache::Take(std::uint64_t place) {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if (!tiers_[tier].places.Has(place)) continue;
    Erase(tiers_[tier], place);
    return tier;
  }
  return std::nullopt;
}

void NodeCache::KeepFrom(std::size_t tier, std::uint64_t place) {
  const double bytes = job_.sizes[stream_[place]];
  while (tier < tiers_.size() && bytes > tiers_[tier].bytes) ++tier;
  if (tier == tiers_.size()) return;
  Tier& into = tiers_[tier];
  into.places.Insert(place);
  into.used_bytes += bytes;
  // Empty, and used_bytes above 0: what rounding has left.
  while (into.used_bytes > into.bytes && !into.places.empty()) {
    const std::uint64_t evicted =
        evicts_ == Evicts::kFirst ? into.places.First() : into.places.Last();
    Erase(into, evicted);
    KeepFrom(tier + 1, evicted);
  }
}

void NodeCache::Erase(Tier& tier, std::uint64_t place) const {
  tier.places.Erase(place);
  tier.used_bytes -= job_.sizes[stream_[place]];
}

namespace {

constexpr std::uint64_t kNoPlace = std::numeric_limits<std::uint64_t>::max();

SampleFetch FetchFromTier(std::optional<std::size_t> tier) {
  if (!tier) return {.from = SampleFetch::From::kStorage};
  return {.from = SampleFetch::From::kTier, .tier = *tier};
}

class Lru final : public PublishedPolicy {
 public:
  explicit Lru(const PolicyRequest& request) : PublishedPolicy(request) {
    for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
      nodes_.push_back(
          {.cache = NodeCache(job(), request.streams.Of(node), NodeCache::Evicts::kFirst),
           .last_use = std::vector<std::uint64_t>(job().sizes.size(), kNoPlace)});
    }
  }

  SampleFetch FetchOf(std::uint32_t node, std::uint64_t place, std::uint32_t sample,
                      double /*begin*/) override {
    Node& own = nodes_[node];
    std::optional<std::size_t> tier;
    if (own.last_use[sample] != kNoPlace) tier = own.cache.Take(own.last_use[sample]);
    own.cache.Keep(place);
    own.last_use[sample] = place;
    return FetchFromTier(tier);
  }

 private:
  struct Node {
    NodeCache cache;
    std::vector<std::uint64_t> last_use;  // by sample
  };

  std::vector<Node> nodes_;
};

class Belady final : public PublishedPolicy {
 public:
  explicit Belady(const PolicyRequest& request) : PublishedPolicy(request) {
    std::vector<std::uint64_t> next_use(job().sizes.size(), kNoPlace);  // by sample
    for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
      const std::span<const std::uint32_t> stream = request.streams.Of(node);
      nodes_.push_back({.cache = NodeCache(job(), stream, NodeCache::Evicts::kLast),
                        .next_use = std::vector<std::uint64_t>(stream.size())});
      Node& own = nodes_.back();
      for (std::uint64_t place = stream.size(); place-- > 0;) {
        own.next_use[place] = std::exchange(next_use[stream[place]], place);
      }
      for (const std::uint32_t sample : stream) next_use[sample] = kNoPlace;
    }
  }

  SampleFetch FetchOf(std::uint32_t node, std::uint64_t place, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    Node& own = nodes_[node];
    const std::optional<std::size_t> tier = own.cache.Take(place);
    if (own.next_use[place] != kNoPlace) own.cache.Keep(own.next_use[place]);
    return FetchFromTier(tier);
  }

 private:
  struct Node {
    NodeCache cache;
    std::vector<std::uint64_t> next_use;  // of the sample that is used at a place, after it
  };

  std::vector<Node> nodes_;
};

class Coordl final : public PublishedPolicy {
 public:
  explicit Coordl(const PolicyRequest& request)
      : PublishedPolicy(request),
        kept_(job().sizes.size()),
        used_bytes_(cluster().nodes, std::vector<double>(cluster().tiers.size())) {}

  SampleFetch FetchOf(std::uint32_t node, std::uint64_t /*place*/, std::uint32_t sample,
                      double begin) override {
    const Kept& kept = kept_[sample];
    if (kept.from > begin) return {.from = SampleFetch::From::kStorage};
    return {.from = kept.node == node ? SampleFetch::From::kTier : SampleFetch::From::kPeer,
            .tier = kept.tier};
  }

  void OnStaged(std::uint32_t node, std::uint32_t sample, double end) override {
    Kept& kept = kept_[sample];
    if (kept.from != kNever) return;
    for (std::uint32_t tier = 0; tier < used_bytes_[node].size(); ++tier) {
      double& used_bytes = used_bytes_[node][tier];
      if (used_bytes + job().sizes[sample] > cluster().tiers[tier].bytes) continue;
      used_bytes += job().sizes[sample];
      kept = {.from = end, .node = node, .tier = tier};
      return;
    }
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Kept {
    double from = kNever;  // when its node has it
    std::uint32_t node = 0;
    std::uint32_t tier = 0;
  };

  std::vector<Kept> kept_;                       // by sample
  std::vector<std::vector<double>> used_bytes_;  // by node and tier
};

}  // namespace

std::unique_ptr<PublishedPolicy> MakePublishedLru(const PolicyRequest& request) {
  return std::make_unique<Lru>(request);
}

std::unique_ptr<PublishedPolicy> MakePublishedBelady(const PolicyRequest& request) {
  return std::make_unique<Belady>(request);
}

std::unique_ptr<PublishedPolicy> MakePublishedCoordl(const PolicyRequest& request) {
  return std::make_unique<Coordl>(request);
}

}  // namespace headrace
