#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "store/objects/object_reads.h"

namespace headrace {

// What a simulated server does with one request.
struct ServerAnswer {
  std::int64_t first_byte_ns = 10 * kNsPerMs;   // or until the end, if it sends no byte
  std::uint64_t chunk_bytes = 64 * kKiB;        // reported together
  std::int64_t chunk_ns = kNsPerMs;             // between two chunks
  std::uint64_t bytes_max = ~std::uint64_t{0};  // then it ends with `end`; if less, not with kOk
  AttemptResult end = AttemptResult::kOk;
  std::optional<std::int64_t> retry_after_ns;
  std::optional<std::uint64_t> stall_at;  // sends no further byte from here on, for stall_ns
  std::int64_t stall_ns = 30 * kNsPerSecond;
};

// What an attempt asks the server for.
struct ServerRequest {
  std::uint64_t number;  // from 0, in the order of arrival
  std::uint64_t read;    // its number among the reads of the world
  ByteRange bytes;       // of the object
  std::int64_t now_ns;
};

// A driver of ObjectReads, fetchers and a server in virtual time, in one thread. Each byte depends
// on its place in its object, each attempt has a cell, and the world checks, with EXPECT:
// attempts are never more than the window, at most two a read, and none is alive at the end; each
// read ends once, with its own bytes if it ends well; bytes are kept from cells that have them.
class ObjectWorld {
 public:
  static constexpr int kFetchers = 4;

  struct Work {
    std::uint64_t reads = 1000;
    std::uint64_t bytes = 10 * kKiB;  // of a read
    std::uint64_t queued = 256;       // reads that have not ended, at most
  };

  using Serve = std::function<ServerAnswer(const ServerRequest&)>;

  ObjectWorld(const ObjectReadsOptions& options, std::uint64_t seed, Serve serve);

  // Runs until every read and attempt has ended.
  void Run(const Work& work);

  // For events of a test's own: runs `event` at that time.
  void At(std::int64_t time_ns, std::function<void()> event);
  void KillFetcher(int fetcher);
  // Of a read that has not ended, the `n`th of those modulo their number. Does nothing without one.
  void CancelOne(std::uint64_t n);

  [[nodiscard]] std::int64_t now_ns() const { return now_ns_; }
  [[nodiscard]] const ObjectReads& reads() const { return reads_; }

  // Results, and figures that the server counts.
  std::vector<Status> ends;                // of reads, in order of their ends
  std::vector<std::uint64_t> order;        // reads, in order of their first requests
  std::vector<std::int64_t> requests_ns;   // when each arrived
  std::vector<std::int64_t> successes_ns;  // when each read that ended well did
  std::uint64_t bytes_served = 0;
  std::uint64_t hedged_max = 0;  // attempts at a time of any read
  bool done = false;             // no read is left

 private:
  struct Flight {
    ReadId read{};
    ByteRange bytes;           // of the read
    std::uint64_t offset = 0;  // of the read in the object
    std::vector<std::uint8_t> cell;
    std::uint64_t received = 0;
    int fetcher = 0;
    ServerAnswer answer;
  };
  struct SimRead {
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
    std::vector<std::uint8_t> buffer;
    bool asked = false;
    std::uint64_t attempts = 0;  // alive
  };
  struct Event {
    std::int64_t time_ns;
    std::uint64_t number;
    bool operator>(const Event& other) const {
      return std::pair(time_ns, number) > std::pair(other.time_ns, other.number);
    }
  };

  void AddReads(const Work& work);
  // Does what reads_ asks for, then frees the cell of the attempt that has ended.
  void Act(std::optional<AttemptId> ended = {});
  void Do(const ReadAction& action);
  void Arrive(AttemptId id);
  void SendChunk(AttemptId id);
  void End(AttemptId id, AttemptResult result);
  void Finish(ReadId id, const Status& status);

  Prng prng_;
  const Serve serve_;
  ObjectReads reads_;
  std::int64_t now_ns_ = 0;
  std::uint64_t events_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::map<std::uint64_t, std::function<void()>> runs_;  // by number of the event
  std::map<AttemptId, Flight> flights_;
  std::map<ReadId, SimRead> live_;
  std::uint64_t added_ = 0;
  int next_fetcher_ = 0;
  std::vector<ReadAction> actions_;
};

}  // namespace headrace
