#pragma once

// sim/published/ is the simulator that NoPFS's policy was compared in (R. Boehringer, "Clairvoyant
// Prefetching for Machine Learning I/O", ETH Zurich 2020, section 4.1; Dryden et al., SC'21,
// section 6): policies of papers, sample by sample, on a cluster described by rates. Its code was
// never published; docs/simulate.md has the rules that give its printed results. Pure arithmetic:
// no clock, thread or I/O.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/machine_model.h"
#include "headrace/status.h"

namespace headrace {

// For messages, in the units that scenarios have: "512 bytes", "1.5 kB", "600 GB".
std::string DecimalBytes(double bytes);

// The nodes of a job, in NoPFS's terms. Rates are bytes a second.
struct Cluster {
  // A cache of each node.
  struct Tier {
    double bytes = 0;           // d_j
    std::uint32_t threads = 1;  // p_j
    double rate = kUnlimited;   // r_j(p_j): of all its threads together
    // Whether it is a node's even part of a burst buffer. In virtual time the nodes that read it
    // divide the rates of all parts.
    bool shared = false;
  };

  std::uint32_t nodes = 1;              // N
  double compute_rate = kUnlimited;     // c
  double sample_rate = kUnlimited;      // samples a second; in place of c, or beside it
  double preprocess_rate = kUnlimited;  // beta
  // Seconds that follow the computing of each step, on all nodes together, and by how much of them
  // they are longer while the network is busy.
  double allreduce_seconds = 0;
  double allreduce_noise = 0;
  Curve storage;                          // t: of all nodes that read it, over their number
  double storage_link_rate = kUnlimited;  // b_fs
  // Of each read of storage, before its bytes come, however many there are. Not in the papers.
  double storage_latency_seconds = 0;
  // Whether the reads of a node divide its part of storage; else each has all of it, as in the
  // thesis's results.
  bool reads_share = false;
  double network_rate = kUnlimited;   // b_c
  double staging_bytes = 0;           // d_0
  std::uint32_t staging_threads = 1;  // p_0
  double staging_rate = kUnlimited;   // w_0(p_0)
  std::vector<Tier> tiers;            // fastest first

  static constexpr std::size_t kTiersMax = 8;

  // Errors: InvalidArgument  no node, more than kTiersMax tiers, a rate or a number of threads that
  //                          is not above 0, bytes below 0 or not finite
  [[nodiscard]] Status Check() const;

  // Seconds that a node computes on a sample.
  [[nodiscard]] double Compute(double bytes) const {
    return bytes / compute_rate + 1 / sample_rate;
  }
  // Seconds of an allreduce. `bytes`: what all nodes together got over the network in the `seconds`
  // since the step before had computed.
  [[nodiscard]] double Allreduce(double bytes, double seconds) const;
  // Seconds a byte of one read. `readers`, above 0: nodes that read storage then, this one
  // included; where reads share, as many of a node as staging has threads. `tier` is below
  // tiers.size().
  [[nodiscard]] double FromStorage(std::uint32_t readers) const {
    return NodeFromStorage(readers) * (reads_share ? staging_threads : 1);
  }
  // Of all reads of a node together.
  [[nodiscard]] double NodeFromStorage(std::uint32_t readers) const;
  // Seconds by which the latency makes a read of so many bytes longer than FromStorage() says:
  // where reads share, other threads' bytes come meanwhile.
  [[nodiscard]] double StorageWait(double bytes, std::uint32_t readers) const;
  // By the tier's whole rate, not that of one of its threads: the thesis's equations divide by the
  // threads, but its results do not follow from that.
  [[nodiscard]] double FromTier(std::size_t tier) const;
  [[nodiscard]] double FromPeer(std::size_t tier) const;
  [[nodiscard]] double ToStaging() const;  // preprocessing and writing
  // Seconds a byte through all threads of staging, of a read that takes one of them `fetch`.
  [[nodiscard]] double Staged(double fetch) const {
    return (fetch + ToStaging()) / static_cast<double>(staging_threads);
  }
};

}  // namespace headrace
