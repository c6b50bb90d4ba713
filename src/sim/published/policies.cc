// The policies that NoPFS was compared with, and NoPFS itself.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "base/prng.h"
#include "base/units.h"
#include "plan/permutation.h"
#include "sim/published/caches.h"
#include "sim/published/corgipile.h"
#include "sim/published/nopfs_plan.h"
#include "sim/published/policy.h"
#include "sim/published/shares.h"

namespace headrace {
namespace {

using From = SampleFetch::From;

// No stall: every sample is there when it is needed.
class Perfect final : public PublishedPolicy {
 public:
  using PublishedPolicy::PublishedPolicy;

  [[nodiscard]] bool reads_ahead() const override { return false; }
  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t /*place*/, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    return {.from = From::kNone};
  }
};

// Reads nothing ahead, keeps nothing.
class Naive final : public PublishedPolicy {
 public:
  using PublishedPolicy::PublishedPolicy;

  [[nodiscard]] bool reads_ahead() const override { return false; }
  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t /*place*/, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    return {.from = From::kOnDemand};
  }
};

// Reads ahead from storage, in order; keeps nothing. tf.data's prefetch, double buffering.
class StagingBuffer final : public PublishedPolicy {
 public:
  using PublishedPolicy::PublishedPolicy;

  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t /*place*/, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    return {.from = From::kStorage};
  }
};

// LBANN's data store: the memory of all nodes holds the dataset, each sample on one node.
class DataStore final : public PublishedPolicy {
 public:
  // `preloads`: before the first step; else in the first epoch, by the node that uses it.
  DataStore(const PolicyRequest& request, bool preloads)
      : PublishedPolicy(request), preloads_(preloads) {}

  Result<Preload> Begin(Streams& streams) override {
    HEADRACE_ASSIGN_OR_RETURN(const PreloadedShares shares, PreloadShares(job(), policy(), 0));
    if (std::ranges::find(shares.held, false) != shares.held.end()) {
      double bytes = 0;
      for (const double size : job().sizes) bytes += size;
      return FailedPrecondition(
          "{}: keeps all samples in memory, {}, and the first tiers of {} have {}; add memory or "
          "nodes",
          policy(), DecimalBytes(bytes), Counted(cluster().nodes, "node"),
          DecimalBytes(cluster().tiers[0].bytes * cluster().nodes));
    }
    from_storage_ = preloads_ ? 0 : streams.steps_per_epoch() * job().batch_size;
    return preloads_ ? shares.preload : Preload();
  }

  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t place, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    if (place < from_storage_) return {.from = From::kStorage, .readers = cluster().nodes};
    return {.from = From::kPeer, .tier = 0};
  }

 private:
  const bool preloads_;
  std::uint64_t from_storage_ = 0;  // places of a stream
};

// Of the tier that nodes load samples into before the first step.
enum class Preloaded : std::uint8_t { kFirst, kLast };

std::size_t TierOf(Preloaded into, const Cluster& cluster) {
  return into == Preloaded::kFirst || cluster.tiers.empty() ? 0 : cluster.tiers.size() - 1;
}

// What nodes have loaded before the first step comes from them, the rest from storage: DeepIO in
// order (the rest when it is needed), locality-aware loading. The thesis's figures have the latter
// in the last tier, though its text says in memory.
class PeersThenStorage final : public PublishedPolicy {
 public:
  PeersThenStorage(const PolicyRequest& request, Preloaded into, From rest)
      : PublishedPolicy(request), into_(into), rest_(rest) {}

  Result<Preload> Begin(Streams& /*streams*/) override {
    HEADRACE_ASSIGN_OR_RETURN(shares_, PreloadShares(job(), policy(), TierOf(into_, cluster())));
    return shares_.preload;
  }

  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t /*place*/, std::uint32_t sample,
                      double /*begin*/) override {
    if (shares_.held[sample]) return {.from = From::kPeer, .tier = shares_.tier};
    return {.from = rest_};
  }

 private:
  const Preloaded into_;
  const From rest_;
  PreloadedShares shares_;
};

// Nodes train on what they have loaded before the first step, shuffled again and again: DeepIO in
// its opportunistic mode, in memory; and parallel staging of shards, in the last tier, with copies
// of others' samples where there is room.
class OwnShares final : public PublishedPolicy {
 public:
  OwnShares(const PolicyRequest& request, Preloaded into) : PublishedPolicy(request), into_(into) {}

  Result<Preload> Begin(Streams& streams) override {
    HEADRACE_ASSIGN_OR_RETURN(PreloadedShares shares,
                              PreloadShares(job(), policy(), TierOf(into_, cluster())));
    tier_ = shares.tier;
    if (into_ == Preloaded::kLast) shares.CopyFromPeers(job());
    for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
      if (shares.samples[node].empty()) {
        return FailedPrecondition("{}: the tier of node {} has room for no sample; enlarge it",
                                  policy(), node);
      }
      streams.Replace(node, Shuffled(shares.samples[node], node, streams.Of(node).size()));
    }
    return shares.preload;
  }

  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t /*place*/, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    return {.from = into_ == Preloaded::kFirst ? From::kPeer : From::kTier, .tier = tier_};
  }

 private:
  // `count` of them: shuffles one after the other.
  [[nodiscard]] std::vector<std::uint32_t> Shuffled(std::vector<std::uint32_t> samples,
                                                    std::uint32_t node, std::size_t count) const {
    std::vector<std::uint32_t> all;
    all.reserve(count);
    for (std::uint64_t round = 0; all.size() < count; ++round) {
      Shuffle(samples, Prng(job().seed, round, RandomStream::kShare, node));
      const std::size_t taken = std::min(samples.size(), count - all.size());
      all.insert(all.end(), samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    return all;
  }

  const Preloaded into_;
  std::size_t tier_ = 0;
};

constexpr std::string_view kThesis = "Boehringer 2020, section 4.1.4";

constexpr auto kPolicies = std::to_array<PublishedPolicyRow>({
    {.name = "perfect", .title = "Perfect", .paper = kThesis, .make = MakePublished<Perfect>},
    {.name = "naive", .title = "Naive", .paper = kThesis, .make = MakePublished<Naive>},
    {.name = "staging",
     .title = "StagingBuffer",
     .paper = "prefetch of tf.data, double buffering",
     .make = MakePublished<StagingBuffer>},
    {.name = "deepio_ordered",
     .title = "DeepIO, ordered",
     .paper = "Zhu et al., MASCOTS'18",
     .make = MakePublished<PeersThenStorage, Preloaded::kFirst, From::kOnDemand>},
    {.name = "deepio_opportunistic",
     .title = "DeepIO, opportunistic",
     .paper = "Zhu et al., MASCOTS'18",
     .changes_order = true,
     .make = MakePublished<OwnShares, Preloaded::kFirst>},
    {.name = "parallel_staging",
     .title = "ParallelStaging",
     .paper = kThesis,
     .changes_order = true,
     .make = MakePublished<OwnShares, Preloaded::kLast>},
    {.name = "lbann_dynamic",
     .title = "LBANN, dynamic",
     .paper = "Jacobs et al., CLUSTER'19",
     .make = MakePublished<DataStore, false>},
    {.name = "lbann_preloading",
     .title = "LBANN, preloading",
     .paper = "Jacobs et al., CLUSTER'19",
     .make = MakePublished<DataStore, true>},
    {.name = "locality_aware",
     .title = "LocalityAware",
     .paper = "Yang and Cong, HiPC'19",
     .make = MakePublished<PeersThenStorage, Preloaded::kLast, From::kStorage>},
    {.name = "nopfs",
     .title = "NoPFS",
     .paper = "Dryden et al., SC'21",
     .make = MakePublishedNopfs},
    {.name = "nopfs_cleanup",
     .title = "NoPFS, cleanup_read",
     .paper = kThesis,
     .make = MakePublishedNopfsCleanup},
    {.name = "lru", .title = "LRU", .paper = "the page cache", .make = MakePublishedLru},
    {.name = "belady",
     .title = "Belady",
     .paper = "Belady, IBM Systems Journal 1966",
     .make = MakePublishedBelady},
    {.name = "coordl",
     .title = "CoorDL",
     .paper = "Mohan et al., VLDB'21",
     .make = MakePublishedCoordl},
    {.name = "corgipile",
     .title = "CorgiPile",
     .paper = "Xu et al., SIGMOD'22",
     .changes_order = true,
     .make = MakePublishedCorgiPile},
});

}  // namespace

std::span<const PublishedPolicyRow> PublishedPolicies() { return kPolicies; }

const PublishedPolicyRow* FindPublishedPolicy(std::string_view name) {
  const auto* const row = std::ranges::find(kPolicies, name, &PublishedPolicyRow::name);
  return row == kPolicies.end() ? nullptr : row;
}

}  // namespace headrace
