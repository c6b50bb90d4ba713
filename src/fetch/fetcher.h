#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "fetch/fetch.h"
#include "headrace/status.h"

namespace headrace {

// How to take memory for reads.
struct MemoryTerms {
  // Left free, unless nothing is in use. Reads that wait for other nodes leave this much to the
  // reads that those nodes wait for: otherwise nodes could deadlock.
  std::uint64_t keep_bytes = 0;
  bool any = false;  // not only ready memory, AcquireReady(): the caller cannot wait
};

// Takes memory for reads, starts them at their sources and counts those in flight.
//
// A read goes through: Acquire() -> Start() -> Flush() -> the source -> the loop of the owner,
// which calls Finish() -> FetchClient::OnFetched(). A task that tries to read at once calls Begin()
// in place of Start(), then ReadNow(), and Read() if that failed.
//
// Thread safety: the owner's loop calls the methods, except those marked "any thread".
// Ownership: sources, and the fetches in flight, outlive it.
// Shutdown: the owner waits until nothing is in flight.
class Fetcher {
 public:
  struct Options {
    FetchSources sources;
    std::uint32_t in_flight_max = 64;
    std::stop_token stop;  // reads that have not begun when it is requested end as Cancelled
    // A read has ended: must make the loop call Finish(). Any thread.
    FetchSource::Done ended;
    // Called with a number of reads before they go to their sources. Any thread.
    std::function<void(std::uint64_t)> beginning;
  };

  // Monotonic, except the gauge. `reads` and `read_bytes` count reads of storage only.
  struct Stats {
    std::uint64_t reads = 0;
    std::uint64_t read_bytes = 0;  // gaps between coalesced extents, too
    std::uint64_t in_flight = 0;   // gauge
  };

  // The result of Acquire().
  enum class Memory : std::uint8_t {
    kTaken,  // all fetches have memory
    kWait,   // the pool has no room now
    kNone,   // the system has no memory
  };

  explicit Fetcher(Options options) : options_(std::move(options)) {}
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  // Whether one more read of storage or of a tier may be in flight. Reads of other nodes are not
  // counted, and need no room: they end when another node has read storage, which may itself wait
  // for this one. Memory bounds them.
  [[nodiscard]] bool has_room() const {
    return stats_.in_flight - at_nodes_ < options_.in_flight_max;
  }
  [[nodiscard]] std::uint32_t in_flight_max() const { return options_.in_flight_max; }
  [[nodiscard]] const Stats& stats() const { return stats_; }

  // Takes memory for those of `group` that have none, for all of them or for none. Exceeds
  // the pool's budget if all of it is free and not enough: waiting would never end.
  Memory Acquire(std::span<Fetch* const> group, BufferPool& pool, const MemoryTerms& terms = {});
  // The same within the budget only, for reads that nobody waits for.
  bool AcquireWithin(std::span<Fetch* const> group, BufferPool& pool,
                     const MemoryTerms& terms = {});

  // Counts a read as in flight. `first`: no task has tried it before.
  void Begin(const Fetch& fetch, bool first = true);
  // The same, and queues it for Flush().
  void Start(Fetch& fetch, bool first = true);
  // Hands the queued reads to the sources.
  void Flush();
  // Ends a read at once, because the system had no memory for it.
  void Refuse(Fetch& fetch);

  // Counts reads that a task made by FetchSource::ReadAllNow(), of which none began.
  void CountNow(std::uint64_t reads, std::uint64_t bytes) {
    stats_.reads += reads;
    stats_.read_bytes += bytes;
  }

  // A read is in flight no longer; `count` reads that are not of other nodes.
  void Finish(const Fetch& fetch) {
    if (fetch.at_node()) --at_nodes_;
    --stats_.in_flight;
  }
  void Finish(std::uint64_t count = 1) { stats_.in_flight -= count; }

  // Any thread. Reads `fetch`, which has begun, into `to` if that needs no device. Returns false
  // if it does, or if the run was stopped.
  bool ReadNow(Fetch& fetch, std::span<std::byte> to) const;
  // Any thread. Reads that have begun, and that ReadNow() could not serve; all of one source.
  void Read(std::span<Fetch* const> fetches) const;

 private:
  void Count(const Fetch& fetch);
  [[nodiscard]] FetchSource& SourceOf(const Fetch& fetch) const {
    return options_.sources.Of(fetch);
  }
  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const {
    return SourceOf(fetch).BufferBytes(fetch);
  }

  const Options options_;
  Stats stats_;
  std::uint64_t at_nodes_ = 0;  // of stats_.in_flight
  std::vector<Fetch*> lined_up_;
};

}  // namespace headrace
