#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/shared_memory.h"
#include "base/units.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "ipc/spawned_process.h"
#include "store/objects/cell_space.h"
#include "store/objects/fetcher_messages.h"
#include "store/objects/read_events.h"

namespace headrace {

struct FetchersOptions {
  std::vector<std::string> command;             // starts one; see helper_command.h
  std::uint64_t memory_bytes = 256 * kMiB;      // of all cells: address space, used as needed
  std::size_t processes_max = 4;                // without those that are about to be ended
  std::uint32_t attempts_each = 16;             // with more on each, one more process starts
  std::int64_t silence_ns = 30 * kNsPerSecond;  // without a byte, until an attempt is ended

  // A process that owes more ends of cancelled attempts than `owed_max`, or one for longer than
  // `owed_ns`, gets no further attempts. It is killed once it has none, or after `silence_ns`.
  std::uint32_t owed_max = 32;
  std::int64_t owed_ns = 60 * kNsPerSecond;
};

// What happened to an attempt: bytes came, or it ended.
struct FetcherEvent {
  AttemptId attempt{};
  bool ended = false;
  AttemptEnd end;  // before its end: the bytes only
};

// Fetchers: spawned processes which make the requests, each many at a time, and memory of cells
// that they write to. Of an attempt that starts: it waits for a cell, then goes to the process with
// the fewest. A process that ends is replaced with the next start; its attempts end with
// kFetcherGone, or, if kFailedStartsMax in a row ended without a report, with kRefused.
//
// An attempt that is cancelled ends at once, here: a fetcher may need long to end a request. Its
// cell stays taken until the fetcher has confirmed the end, or has ended itself.
//
// Thread safety: none; one thread drives.
// Shutdown: the destructor kills the processes.
class Fetchers {
 public:
  static constexpr std::uint32_t kFailedStartsMax = 3;

  // Starts one process.
  //
  // Errors: FailedPrecondition  no command, or it cannot be run
  //         ResourceExhausted   out of descriptors, processes or memory
  static Result<std::unique_ptr<Fetchers>> Make(FetchersOptions options);

  // `start` without a cell, for bytes that are at most as many as the memory has. Its URL is kept
  // until the attempt is sent, cancelled or released.
  void Start(const FetchStart& start);
  // The attempt has no further events. Returns how many bytes its cell has.
  std::uint64_t Cancel(AttemptId attempt, std::int64_t now_ns);
  // Of an attempt whose end was an event: its cell may be used again.
  void Release(AttemptId attempt);
  // Of an attempt that was sent, and neither cancelled nor released.
  [[nodiscard]] std::span<const std::byte> cell(AttemptId attempt) const;

  // Sends starts and cancels.
  void Send(std::int64_t now_ns);
  // Receives reports. Ends what is overdue: also to be called at next_ns().
  void Receive(std::int64_t now_ns);
  [[nodiscard]] std::optional<std::int64_t> next_ns() const;
  // What happened in these two calls, in order; std::nullopt: no more.
  std::optional<FetcherEvent> NextEvent();
  // Adds what to wait for until the next of these calls.
  void AddPolls(std::vector<pollfd>& polls) const;

  [[nodiscard]] std::uint64_t used_bytes() const { return space_.used_bytes(); }

 private:
  struct Fetcher {
    std::unique_ptr<SpawnedProcess> process;
    FetcherPackets packets;                  // not sent yet
    std::uint32_t open = 0;                  // attempts that have not ended
    std::uint32_t owed = 0;                  // that ended here, and not there
    bool reported = false;                   // it runs
    std::optional<std::int64_t> retired_ns;  // since when it gets no further attempts
  };
  struct Attempt {
    FetchStart start;
    Fetcher* fetcher = nullptr;  // from its start until it has confirmed the end
    bool open = true;            // has not ended
    bool held = true;            // was neither cancelled nor released
    bool has_cell = false;
    std::uint64_t received = 0;
    std::int64_t changed_ns = 0;  // when the last byte came, or it began; when it ended
  };

  Fetchers(FetchersOptions options, std::shared_ptr<SharedMemory> memory);
  Status AddFetcher();
  // The process for the next attempt, maybe a new one.
  Result<Fetcher*> Choose();
  void SendPackets(Fetcher& fetcher);
  void ReceiveFrom(Fetcher& fetcher, std::int64_t now_ns);
  // False: a fetcher may not say that.
  bool Take(Fetcher& fetcher, FetcherReport report, std::int64_t now_ns);
  // Ends an open attempt, whose fetcher has not confirmed it.
  void Close(AttemptId id, Attempt& attempt, std::int64_t now_ns);
  void EndSilent(std::int64_t now_ns);
  void RetireAndKill(std::int64_t now_ns);
  // Ends the process, after `grace_ns` if it does not by itself, and its attempts. `why`: why it is
  // killed; empty: it has closed its socket.
  void End(Fetcher& fetcher, std::string_view why, std::int64_t grace_ns);
  // Frees the cell, if nobody uses it.
  void Forget(AttemptId id);

  const FetchersOptions options_;
  const std::shared_ptr<SharedMemory> memory_;
  CellSpace space_;
  std::vector<std::unique_ptr<Fetcher>> fetchers_;
  std::unordered_map<AttemptId, Attempt> attempts_;  // that have a cell, or wait for one
  std::deque<AttemptId> waiting_;                    // some may have been cancelled
  std::deque<FetcherEvent> events_;                  // some may be of attempts that are not held
  std::uint32_t failed_starts_ = 0;                  // in a row
  std::int64_t checked_ns_ = 0;                      // when what is overdue was looked for
};

}  // namespace headrace
