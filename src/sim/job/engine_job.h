#pragma once

// sim/job/ runs a job of Headrace in virtual time: the order, the placement and the engine of each
// node as a loader has them, over storage, tiers and links that take time and hold no bytes. It
// counts what the published policies of sim/published/ count, so that both stand in one table.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headrace/loader_options.h"
#include "headrace/members.h"
#include "headrace/order_options.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "sim/published/run.h"

namespace headrace {

// How the nodes of a job load, beside its cluster.
struct EngineJobOptions {
  std::string order = DefaultOrder();
  OrderParameters parameters;                  // of the order; bytes are those of the job
  std::string placement = DefaultPlacement();  // of samples in tiers; not used without tiers
  std::string schedule = DefaultLanePolicy();  // shares a node among its ranks: LanePolicies()
  std::uint32_t ranks = 1;         // of a node, each with a batch of SimulatedJob::batch_size
  std::uint32_t batches_max = 64;  // that a node has ahead, if staging has room
  // Reads of storage that each node has in flight. 0: those of a loader, 64, where reads share
  // storage; otherwise one for each thread of staging and of the tiers.
  std::uint32_t reads_in_flight = 0;
  // Of storage at its best rate, all nodes together. Only where reads share it.
  double reads_per_second = kUnlimited;
  bool files = false;  // whether each sample is one, so that no read has two
};

// What a rank took for each stage, over all steps (Liu et al. 2022, figure 3).
struct RankStages {
  // Reads from when they were issued, summed over those in flight, by where they read from. What
  // comes with a block has none.
  double tier_seconds = 0;
  double node_seconds = 0;
  double storage_seconds = 0;
  double preprocess_seconds = 0;  // summed over threads
  double train_seconds = 0;
  double wait_seconds = 0;     // for its own batch
  double barrier_seconds = 0;  // for slower ranks
};
HEADRACE_MEMBERS(RankStages, tier_seconds, node_seconds, storage_seconds, preprocess_seconds,
                 train_seconds, wait_seconds, barrier_seconds)

struct EngineJobResult {
  SimulatedRun run;
  double least_seconds = 0;         // of this plan without a stall: the slowest node of each step
  double first_read_seconds = 0;    // JobPlan::FirstReadSeconds()
  StallTimes stall_ns{};            // of all nodes together, by what they waited for
  std::uint64_t storage_reads = 0;  // of all nodes together: requests
  // Of the samples that came from the nodes' own tiers: read ahead, and used for the first time;
  // all others are reuse. Only by RunEngines().
  std::uint64_t ahead_samples = 0;
  // Of each step, between the slowest and the fastest rank: loading and preprocessing its batch
  // from when the engine admitted it, or computing where that takes longer. Only by RunEngines().
  std::vector<double> spread_seconds;
  std::vector<RankStages> ranks;  // of the first node, then of the next, ... Only by RunEngines().
};

// Runs the job. A step begins on all ranks when the slowest has ended the one before, and a rank
// computes, at its part of the node's rate, once it has its whole batch.
//
// - The nodes that read divide the rate of storage among them. The reads of a node divide its part
//   (Cluster::reads_share), and neighbours of a step are one read, as in a loader, unless samples
//   are files; or each has all of it, and is one sample, as in the papers. Orders that read blocks
//   read them in pieces.
// - Each read is charged at least as many bytes as storage's best rate gives between two of
//   `reads_per_second`.
// - As many tasks as staging has threads preprocess and write, each at Cluster::ToStaging(). They
//   and reads in flight are what `schedule` shares among the ranks of a node.
// - The batches that a node has in use and ahead, and what its order keeps resident, fit into
//   staging; but one in use and one ahead are allowed in any case.
// - Nodes whose order has each read blocks of its own and send the others samples of them keep what
//   is resident in staging and the first tier, which no other use has then.
// - Reads of a tier, and those of other nodes' samples over a node's link, share its rate or have
//   all of it likewise. Writing to a tier takes no time.
//
// `keep_going` is asked before each node is planned, often while one is, and during each step; once
// it returns false it must do so always. May be empty.
//
// Thread safety: may be called from any thread.
// Memory: 8 bytes a sample, the plans of all nodes, and what orders that read blocks keep resident,
//   scaled to 512 bytes a sample.
// Errors: Cancelled           keep_going() returned false
//         FailedPrecondition  what the order keeps resident does not fit into staging
//         InvalidArgument     it takes more than 73 years; no such order, placement or lane policy;
//                             those of SimulatedJob::Check() and of ResolvedOrder::Make()
Result<EngineJobResult> RunEngines(const SimulatedJob& job, const EngineJobOptions& options,
                                   const std::function<bool()>& keep_going = nullptr);

}  // namespace headrace
