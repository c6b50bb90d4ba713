#pragma once

// What the parts of a loader count: its memory, the store, tiers, other nodes, the engine. Plain
// structs; each part fills its own. LoaderStats (loader_stats.h) holds them for one loader.
// HEADRACE_MEMBERS lists the members of each, so that a program can walk them: ForEachMember().
//
// Sizes in bytes, times in nanoseconds. All figures except the gauges only rise.
//
// Thread safety: as for any plain struct.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/ids.h"
#include "headrace/members.h"

namespace headrace {

// What a consumer that had to wait for a batch was waiting for.
enum class StallCause : std::uint8_t {
  kStorage = 0,   // bytes of the batch were not read yet
  kDecode = 1,    // they were, and not decoded yet
  kConsumer = 2,  // the consumer itself held the memory to read ahead into
  kRanks = 3,     // another rank of the node held its own, so that the plan could not go on
};
inline constexpr std::size_t kStallCauses = 4;
inline constexpr std::array<std::string_view, kStallCauses> kStallCauseNames = {
    "storage", "decode", "consumer", "ranks"};

// Nanoseconds by StallCause.
using StallTimes = std::array<std::int64_t, kStallCauses>;

// A corrupt sample and what was delivered in its place.
struct Substitution {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t slot = 0;
  SampleId wanted{};
  SampleId given{};
  std::string reason;
};
HEADRACE_MEMBERS(Substitution, epoch, step, slot, wanted, given, reason)
// The most substitutions that statistics list.
inline constexpr std::size_t kSubstitutionsListed = 10000;

// A pool of memory for buffers of any size. Gauges, but for the peaks and the count.
struct BufferStats {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t used_bytes_peak = 0;
  std::uint64_t beyond_bytes = 0;  // in use beyond the capacity
  std::uint64_t beyond_bytes_peak = 0;
  std::uint64_t beyond_count = 0;  // buffers beyond the capacity so far

  // Of two pools together; peaks are at most what both reached at once.
  BufferStats& operator+=(const BufferStats& other);
};
HEADRACE_MEMBERS(BufferStats, capacity_bytes, used_bytes, used_bytes_peak, beyond_bytes,
                 beyond_bytes_peak, beyond_count)

// Memory in cells of one size, for samples that stay for a while.
struct CellStats {
  std::uint64_t unit_bytes = 0;  // of a cell
  std::uint64_t capacity_units = 0;
  std::uint64_t used_units = 0;  // gauge
  std::uint64_t used_units_peak = 0;
};
HEADRACE_MEMBERS(CellStats, unit_bytes, capacity_units, used_units, used_units_peak)

// Memory that decodes need beside their input and their rows.
struct ScratchStats {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;  // gauge: reserved for threads, and held by large decodes
  std::uint64_t used_bytes_peak = 0;
  std::uint64_t large_count = 0;  // large decodes so far
};
HEADRACE_MEMBERS(ScratchStats, capacity_bytes, used_bytes, used_bytes_peak, large_count)

// The store. Counters since it was made: monotonic, except the gauges.
struct StoreStats {
  std::string name;                    // "io_uring", "threads", "object_store", "synthetic"
  std::string note;                    // why this one, if there was a choice: "io_uring: EPERM ..."
  std::uint64_t reads = 0;             // requests answered, with success or not
  std::uint64_t bytes = 0;             // bytes of the ranges answered with success
  std::uint64_t bytes_direct = 0;      // bytes read past the page cache, including widening
  std::uint64_t bytes_page_cache = 0;  // bytes found in the page cache; 0 if a store cannot know
  std::uint64_t retries = 0;           // tries after the first
  std::uint64_t failures = 0;          // requests answered with an error, except Cancelled
  std::uint64_t hedges = 0;            // second requests beside one of an object store that is late
  std::uint64_t slow_downs = 0;        // answers of an object store that asked for fewer requests
  std::uint64_t request_bytes = 0;     // gauge: memory of requests of an object store
  std::uint64_t request_bytes_peak = 0;
  // Of objects that the store decodes as a whole: those kept and those in progress.
  std::uint64_t held_bytes = 0;  // gauge
  std::uint64_t held_bytes_peak = 0;
  // With a share (`headrace node --share`): requests, and their bytes, that other jobs had read.
  std::uint64_t share_reads = 0;
  std::uint64_t share_bytes = 0;
};
HEADRACE_MEMBERS(StoreStats, name, note, reads, bytes, bytes_direct, bytes_page_cache, retries,
                 failures, hedges, slow_downs, request_bytes, request_bytes_peak, held_bytes,
                 held_bytes_peak, share_reads, share_bytes)

// A tier.
struct TierStats {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;  // gauge: in units, with entries being written and freed
  std::uint64_t used_bytes_peak = 0;
  std::uint64_t entries = 0;            // gauge: samples that it holds
  std::uint64_t entries_inherited = 0;  // of an earlier run, found at the start and kept
  std::uint64_t inserts = 0;            // successful ones
  std::uint64_t inserts_refused = 0;    // for lack of room
  std::uint64_t inserts_failed = 0;     // the medium failed
  std::uint64_t erased = 0;             // as the plan said
  std::uint64_t read_bytes = 0;         // from the medium, of entries
  std::uint64_t written_bytes = 0;
  std::uint64_t corrupt = 0;  // entries with a wrong checksum: dropped
  std::uint64_t reads_failed = 0;
  bool degraded = false;        // the medium failed: no more inserts, or no service at all
  std::string degraded_reason;  // the first failure
};
HEADRACE_MEMBERS(TierStats, capacity_bytes, used_bytes, used_bytes_peak, entries, entries_inherited,
                 inserts, inserts_refused, inserts_failed, erased, read_bytes, written_bytes,
                 corrupt, reads_failed, degraded, degraded_reason)

// What this node and the other nodes of the job gave each other. Monotonic, but for `down`.
struct NodeTraffic {
  std::uint32_t node = 0;   // number of this node
  std::uint32_t nodes = 1;  // of the job; 1: there is no other, or it is not asked
  std::uint64_t received_samples = 0;
  std::uint64_t received_bytes = 0;  // of these
  std::uint64_t asked_samples = 0;   // of other nodes
  std::uint64_t requests = 0;        // messages that asked for these, one or several
  std::uint64_t answers = 0;         // messages that came in answer
  std::uint64_t not_held = 0;        // requested, and the other node did not have it
  std::uint64_t failed = 0;          // requested, and not answered in time, or wrongly
  std::uint64_t asked_second = 0;  // that a second node was asked for, as the first did not answer
  std::uint64_t second_gave = 0;   // of these, those that the second gave
  std::uint64_t given_samples = 0;
  std::uint64_t given_bytes = 0;     // of these
  std::uint64_t not_given = 0;       // that others asked for, and this node did not have
  std::uint64_t bad_messages = 0;    // of others: refused, as they do not match the request
  std::uint64_t compared_steps = 0;  // of other nodes' plans, with this node's
  std::vector<std::uint32_t> down;   // nodes that are not asked now, as they did not answer
};
HEADRACE_MEMBERS(NodeTraffic, node, nodes, received_samples, received_bytes, asked_samples,
                 requests, answers, not_held, failed, asked_second, second_gave, given_samples,
                 given_bytes, not_given, bad_messages, compared_steps, down)

// The block reads of a plan. Their requests to the store count in EngineStats::reads and
// read_bytes, too; reads from pinned blocks do not.
struct BlockCounts {
  std::uint64_t reads = 0;  // begun, those of samples that were resident before a restart too
  std::uint64_t bytes = 0;  // asked of the store for them ...
  std::uint64_t reread_bytes = 0;     // of those for what was resident before a restart
  std::uint64_t left_in_storage = 0;  // reads that were not made: the page cache held the samples
  std::uint64_t kept_bytes = 0;       // of samples that became resident
  std::uint64_t pinned_reads = 0;     // block reads that found samples in pinned blocks
  std::uint64_t pinned_bytes = 0;     // of these samples
  std::uint64_t parcels = 0;          // of other nodes, begun
  std::uint64_t parcel_samples = 0;   // of these, that came
  std::uint64_t parcel_bytes = 0;     // of these samples
  std::uint64_t sent_parcels = 0;     // to other nodes, whole
  std::uint64_t sent_samples = 0;
  std::uint64_t sent_bytes = 0;
};
HEADRACE_MEMBERS(BlockCounts, reads, bytes, reread_bytes, left_in_storage, kept_bytes, pinned_reads,
                 pinned_bytes, parcels, parcel_samples, parcel_bytes, sent_parcels, sent_samples,
                 sent_bytes)

// Samples that one tier provided.
struct TierUses {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // of these
  std::uint64_t ahead = 0;  // of the samples: there because they were fetched ahead, and not used
                            // before: ready on time. All others are reuse.
};
HEADRACE_MEMBERS(TierUses, samples, bytes, ahead)

// How many samples came from tiers and other nodes, and how many did not.
struct TierCounts {
  std::vector<TierUses> uses;        // by tier, fastest first
  std::uint64_t storage_uses = 0;    // samples that no tier had
  std::uint64_t waits = 0;           // samples waited for on their way into a tier
  std::uint64_t fetched_ahead = 0;   // samples read for a tier alone
  std::uint64_t moved = 0;           // from tier to tier
  std::uint64_t to_keep = 0;         // planned for a tier while none was to have them
  std::uint64_t not_kept = 0;        // planned for a tier, and not inserted
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
HEADRACE_MEMBERS(TierCounts, uses, storage_uses, waits, fetched_ahead, moved, to_keep, not_kept,
                 fallbacks, node_uses, node_bytes, node_fallbacks, brought, tiers_passed,
                 nodes_passed, planned)

// What one lane of an engine did so far: the part of it that serves one rank.
struct LaneStats {
  std::uint64_t batches = 0;       // handed over
  std::uint64_t samples = 0;       // in those
  std::uint64_t sample_bytes = 0;  // stored, of the samples decoded
  // Copied unchanged in memory, into rows or into one buffer for a decoder. The output of a
  // decoder, and bytes read straight into a row, do not count.
  std::uint64_t copied_bytes = 0;
  std::int64_t decode_ns = 0;  // in decode tasks, summed over threads
  // From issuing reads of its samples to their bytes, summed over reads, by where they read from: a
  // tier of this node that is read, another node, storage. Reads of whole blocks have none.
  std::int64_t tier_read_ns = 0;
  std::int64_t node_read_ns = 0;
  std::int64_t storage_read_ns = 0;
  std::int64_t busy_ns = 0;  // sum of BatchTimes::busy_ns
  StallTimes stall_ns{};
  std::int64_t held_up_ns = 0;      // that other lanes waited for this one's consumer
  std::uint64_t ready = 0;          // gauge: handed over, not taken
  std::uint64_t steps_in_work = 0;  // gauge
  std::uint64_t queued_reads = 0;   // gauge: not issued
  bool gone = false;                // its consumer left
  BufferStats batch;                // batches in work, ready and held by it
};
HEADRACE_MEMBERS(LaneStats, batches, samples, sample_bytes, copied_bytes, decode_ns, tier_read_ns,
                 node_read_ns, storage_read_ns, busy_ns, stall_ns, held_up_ns, ready, steps_in_work,
                 queued_reads, gone, batch)

// What an engine did so far, over all lanes; figures of each lane are in `lanes`.
struct EngineStats {
  std::uint64_t reads = 0;                  // issued to the store
  std::uint64_t read_bytes = 0;             // as asked for: gaps between coalesced extents too
  std::uint64_t substituted = 0;            // samples replaced
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
  BlockCounts blocks;
  std::uint64_t reads_in_flight = 0;  // gauge
  std::uint64_t steps_in_work = 0;    // gauge
  BufferStats staging;                // bytes read and not decoded yet
  BufferStats batch;                  // batches in work, ready and held, over all lanes
  CellStats resident;                 // samples of block reads, from the read to their delivery
  BufferStats pinned;                 // blocks that stay in memory
  ScratchStats scratch;               // of decodes, beside their input and rows
  TierCounts tiers;
  std::vector<LaneStats> lanes;
};
HEADRACE_MEMBERS(EngineStats, reads, read_bytes, substituted, substitutions, blocks,
                 reads_in_flight, steps_in_work, staging, batch, resident, pinned, scratch, tiers,
                 lanes)

}  // namespace headrace
