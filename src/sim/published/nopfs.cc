#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "sim/published/nopfs_plan.h"
#include "sim/published/policy.h"

namespace headrace {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// NoPFS. Tiers read ahead what the plan has for them, each of their threads a sample at a time;
// staging takes what a tier of its node has by then, else reads storage, for the tier, too.
// The rules are those that give the thesis's results: samples of other nodes are not read.
class Nopfs final : public PublishedPolicy {
 public:
  // `cleanup`: the thesis's cleanup_read. A sample leaves its tier once staging has fetched it for
  // its last use; the room goes to the samples that the plan had no room for.
  Nopfs(const PolicyRequest& request, bool cleanup) : PublishedPolicy(request), cleanup_(cleanup) {
    for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
      nodes_.push_back({.plan = NopfsPlan(job(), request.streams.Of(node), cleanup),
                        .kept_from = std::vector<double>(job().sizes.size(), kNever),
                        .next = std::vector<std::size_t>(cluster().tiers.size())});
      for (const Cluster::Tier& tier : cluster().tiers) {
        nodes_.back().idle_from.emplace_back(tier.threads);
      }
    }
  }

  SampleFetch FetchOf(std::uint32_t node, std::uint64_t place, std::uint32_t sample,
                      double begin) override {
    Node& own = nodes_[node];
    const std::uint8_t tier = own.plan.tier_of[sample];
    const bool is_kept = own.kept_from[sample] <= begin;
    if (cleanup_ && own.plan.last_use[sample] == place) Drop(own, sample, place);
    if (!is_kept) return {.from = SampleFetch::From::kStorage};
    return {.from = SampleFetch::From::kTier, .tier = tier};
  }

  void OnStaged(std::uint32_t node, std::uint32_t sample, double end) override {
    Keep(nodes_[node], sample, end);
  }

  double FillTiers(std::uint32_t node, double seconds, StorageReaders& readers) override {
    Node& own = nodes_[node];
    double bytes = 0;
    for (std::size_t tier = 0; tier < own.next.size(); ++tier) {
      const std::vector<std::uint32_t>& planned = own.plan.in_use[tier];
      for (double& idle_from : own.idle_from[tier]) {
        // What has left its tier need not be read.
        while (own.next[tier] < planned.size() &&
               own.plan.tier_of[planned[own.next[tier]]] == NopfsPlan::kNoTier) {
          ++own.next[tier];
        }
        if (idle_from > seconds || own.next[tier] == planned.size()) continue;
        const std::uint32_t sample = planned[own.next[tier]++];
        const double size = job().sizes[sample];
        const std::uint32_t reading = readers.At(node, seconds);
        idle_from = seconds + size * (cluster().FromStorage(reading) + cluster().ToStaging()) +
                    cluster().StorageWait(size, reading);
        readers.Reads(node, idle_from);
        Keep(own, sample, idle_from);
        bytes += size;
      }
    }
    return bytes;
  }

 private:
  struct Node {
    NopfsPlan plan;
    std::vector<double> kept_from;                    // by sample: when its tier has it
    std::vector<std::size_t> next;                    // in plan.in_use, by tier
    std::vector<std::vector<double>> idle_from = {};  // by tier and thread
  };

  // Staging has fetched a sample for its last use, at `place`. What takes its room is used later.
  void Drop(Node& node, std::uint32_t sample, std::uint64_t place) const {
    NopfsPlan& plan = node.plan;
    const std::uint8_t tier = plan.tier_of[sample];
    if (tier == NopfsPlan::kNoTier) return;
    plan.tier_of[sample] = NopfsPlan::kNoTier;
    node.kept_from[sample] = kNever;
    plan.used_bytes[tier] -= job().sizes[sample];
    for (; plan.next_left < plan.left.size(); ++plan.next_left) {
      const std::uint32_t next = plan.left[plan.next_left];
      if (plan.last_use[next] <= place) continue;
      if (plan.used_bytes[tier] + job().sizes[next] > cluster().tiers[tier].bytes) return;
      plan.used_bytes[tier] += job().sizes[next];
      plan.tier_of[next] = tier;
      plan.in_use[tier].push_back(next);
    }
  }

  static void Keep(Node& node, std::uint32_t sample, double from) {
    if (node.plan.tier_of[sample] == NopfsPlan::kNoTier) return;
    node.kept_from[sample] = std::min(node.kept_from[sample], from);
  }

  const bool cleanup_;
  std::vector<Node> nodes_;
};

}  // namespace

std::unique_ptr<PublishedPolicy> MakePublishedNopfs(const PolicyRequest& request) {
  return std::make_unique<Nopfs>(request, /*cleanup=*/false);
}

std::unique_ptr<PublishedPolicy> MakePublishedNopfsCleanup(const PolicyRequest& request) {
  return std::make_unique<Nopfs>(request, /*cleanup=*/true);
}

}  // namespace headrace
