#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "base/memory/buffer_pool.h"
#include "engine/batch/stored_fields.h"
#include "engine/loop/engine_options.h"
#include "engine/loop/inbox.h"
#include "fetch/fetch.h"
#include "fetch/fetcher.h"
#include "fetch/verifier.h"
#include "headrace/status.h"

namespace headrace {

class EntryForm;
struct StepWork;

// A row of a step's batch. Components other than engine/rows/ only hand it on.
struct RowRef {
  StepWork* step = nullptr;
  std::uint32_t slot = 0;
};

// An event of the engine's loop: a read that has ended, or other work.
struct LoopEvent {
  Fetch* fetch = nullptr;  // ended with `data`; null: `run`
  Result<std::span<std::byte>> data{std::span<std::byte>()};
  std::function<void()> run;    // by the loop; may be empty
  std::uint64_t completes = 1;  // pieces of work in flight
};

// Deadlines of reads and tasks: first by step, then by the part of their lane's work that comes
// before them.
inline constexpr std::uint64_t kDeadlinesOfStep = std::uint64_t{1} << 16;

// Reads of samples that other nodes send. They wait for other nodes, which may wait for reads of
// this node, so they have memory of their own.
struct ParcelReads {
  BufferPool& memory;
  std::uint64_t round = 0;  // of the run
  StepWait wait;            // what consumers wait for
};

// What the components of the engine share. The engine's loop calls the components, one call at a
// time. Tasks on executors use the constant members alone.
//
// Ownership: the engine's; everything outlives the components.
struct LoopContext {
  const EngineOptions& options;
  Inbox<LoopEvent>& inbox;
  Executor& executor;
  const Clock& clock;
  Fetcher& fetcher;      // of the loop, but for Read()
  FetchSource& storage;  // of the fetcher's sources, for what is not a fetch
  bool asks_nodes;       // whether other nodes can be asked for samples
  ParcelReads* parcels;  // null: other nodes send nothing
  BufferPool& staging;
  const StoredFields& fields;
  const EntryForm& entry_form;  // of what tiers hold
  const Verifier& verifier;
  const std::stop_token stop;  // requested when `ended` is set, and after it

  std::uint64_t sequence = 0;  // of the newest step admitted
  std::int64_t now_ns = 0;     // when the loop began to run, or the newest step was planned
  bool ended = false;          // nothing more is issued or delivered

  [[nodiscard]] std::uint64_t FirstDeadline() const { return sequence * kDeadlinesOfStep; }
  [[nodiscard]] std::uint64_t LastDeadline() const {
    return FirstDeadline() + kDeadlinesOfStep - 1;
  }

  // Staging memory that a read of another node leaves free for what this node reads for others, at
  // least a sample of that size: if the memory of all nodes waited for each other, reads would only
  // end by timeout.
  [[nodiscard]] std::uint64_t KeptBytes(const Fetch& fetch) const {
    if (!fetch.at_node()) return 0;
    return std::max(staging.stats().capacity_bytes / 8,
                    2 * BufferPool::ChargedBytes(fetch.bytes()));
  }

  // Runs `task` on the executor. It ends with Post().
  void Submit(std::uint64_t deadline, Executor::Task task) const {
    inbox.BeginWork();
    executor.Submit(deadline, std::move(task));
  }
  // Has the loop call `run`, which completes work in flight. Any thread.
  void Post(std::function<void()>&& run, std::uint64_t completes = 1) const {
    inbox.Post({.run = std::move(run), .completes = completes});
  }
  // Reads on a thread that is not the loop's. The answer may come, and be the last, while the
  // source is still in Read(): the inbox waits for both, for what follows it is the source's
  // destruction.
  void ReadFromTask(std::span<Fetch* const> fetches) const {
    inbox.BeginWork();
    fetcher.Read(fetches);
    inbox.EndWork();
  }
};

}  // namespace headrace
