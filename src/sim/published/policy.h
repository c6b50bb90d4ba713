#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "sim/published/streams.h"

namespace headrace {

// Where a sample comes from that a node needs.
struct SampleFetch {
  enum class From : std::uint8_t {
    kTier,      // of the node, into staging
    kPeer,      // a tier of another node, into staging
    kStorage,   // into staging
    kOnDemand,  // storage, when the sample is needed: nothing overlaps
    kNone,      // it needs no read: what *Perfect* assumes
  };
  static constexpr std::size_t kKinds = 5;

  From from = From::kStorage;
  std::size_t tier = 0;  // of kTier and kPeer
  // Nodes that read storage then; std::nullopt: those that do.
  std::optional<std::uint32_t> readers = {};
  // From storage: samples that are one read together.
  std::uint64_t neighbours = 1;
};

// Which nodes read storage at a time: NoPFS's gamma.
//
// Thread safety: none.
class StorageReaders {
 public:
  explicit StorageReaders(std::uint32_t nodes) : until_(nodes, -1) {}

  // Nodes that read at that time, `node` included.
  [[nodiscard]] std::uint32_t At(std::uint32_t node, double seconds) const {
    std::uint32_t readers = 1;
    for (std::uint32_t other = 0; other < until_.size(); ++other) {
      readers += static_cast<std::uint32_t>(other != node && until_[other] > seconds);
    }
    return readers;
  }
  void Reads(std::uint32_t node, double until) { until_[node] = std::max(until_[node], until); }

 private:
  std::vector<double> until_;  // by node; of the reads begun so far
};

// What a policy is made for. The job and the streams outlive it.
struct PolicyRequest {
  std::string_view policy;  // its name, for errors
  const SimulatedJob& job;
  const Streams& streams;
};

// What nodes load before the first step, all together.
struct Preload {
  double seconds = 0;  // until the last node is done
  double storage_bytes = 0;
  double peer_bytes = 0;
};

// How the nodes of one run read. A new policy is a class, and a row of PublishedPolicies().
//
// Thread safety: none.
class PublishedPolicy {
 public:
  explicit PublishedPolicy(const PolicyRequest& request)
      : policy_(request.policy), job_(request.job) {}
  PublishedPolicy(const PublishedPolicy&) = delete;
  PublishedPolicy& operator=(const PublishedPolicy&) = delete;
  virtual ~PublishedPolicy() = default;

  // What happens before the first step. May replace streams.
  //
  // Errors: FailedPrecondition  the policy does not support this dataset on this cluster
  virtual Result<Preload> Begin(Streams& /*streams*/) { return Preload(); }

  // Whether staging fetches samples before they are needed.
  [[nodiscard]] virtual bool reads_ahead() const { return true; }

  // Of the sample at `place` of the node's stream. Places are asked for in order, some ahead of
  // their use. `begin`: when the read would begin.
  virtual SampleFetch FetchOf(std::uint32_t node, std::uint64_t place, std::uint32_t sample,
                              double begin) = 0;

  // A sample was fetched from storage into staging, at that time.
  virtual void OnStaged(std::uint32_t /*node*/, std::uint32_t /*sample*/, double /*end*/) {}

  // Lets tiers read ahead from storage; returns the bytes that they begin to read. Called before
  // each use, once staging is full or has all that follows; `seconds`: when it is.
  virtual double FillTiers(std::uint32_t /*node*/, double /*seconds*/,
                           StorageReaders& /*readers*/) {
    return 0;
  }

 protected:
  [[nodiscard]] std::string_view policy() const { return policy_; }
  [[nodiscard]] const SimulatedJob& job() const { return job_; }
  [[nodiscard]] const Cluster& cluster() const { return job_.cluster; }

 private:
  const std::string_view policy_;
  const SimulatedJob& job_;
};

// A row of the table of published policies.
struct PublishedPolicyRow {
  std::string_view name;   // "nopfs"
  std::string_view title;  // "NoPFS"
  std::string_view paper;
  bool changes_order = false;  // its nodes do not train on what the job's order says
  std::unique_ptr<PublishedPolicy> (*make)(const PolicyRequest& request) = nullptr;
};

std::span<const PublishedPolicyRow> PublishedPolicies();

// Null: no row has this name.
const PublishedPolicyRow* FindPublishedPolicy(std::string_view name);

// The row's function of a class that is made of a PolicyRequest and `options`.
template <typename Policy, auto... options>
std::unique_ptr<PublishedPolicy> MakePublished(const PolicyRequest& request) {
  return std::make_unique<Policy>(request, options...);
}

}  // namespace headrace
