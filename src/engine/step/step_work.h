#pragma once

// A lane's part of a step in work, its rows, and the reads and tasks that they come from: records
// that engine/rows/ and engine/lanes/ share.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/cell_pool.h"
#include "engine/decode/sample_decoder.h"
#include "engine/loop/loop_context.h"
#include "engine/memory/scratch_budget.h"
#include "fetch/fetch.h"
#include "fetch/sample_chain.h"
#include "headrace/batch.h"
#include "headrace/status.h"
#include "plan/order.h"
#include "tier/tier.h"

namespace headrace {

// One stored field of one row, both by number.
struct PieceRef {
  std::uint32_t slot = 0;
  std::uint32_t field = 0;
};

// One read of rows: one or several pieces that lie near each other, the entry of one sample, or a
// sample of another node.
struct RowRead : Fetch {
  StepWork* work = nullptr;
  std::vector<PieceRef> pieces;
  std::uint64_t pieces_left = 0;  // whose sample is not done; at 0 the staging memory goes back
  std::int64_t issued_ns = 0;
  bool tried = false;     // to read at once: not again
  bool counted = false;   // as a read, when it was tried
  bool outlasts = false;  // the read lives longer than its task: it needs staging memory
};

// Reads of one step whose memory is taken together.
using RowReads = std::vector<RowRead*>;

// One row of a step, from planned to done.
struct SampleWork {
  std::uint32_t pieces_left = 0;  // not read
  std::uint32_t draws = 0;        // substitutes tried
  Status read_error;              // of the first piece that failed
  Status reason;                  // why it is not the sample that was wanted
  CellRun cells = kNoCells;       // where its bytes are, if a block read brought them
  SampleChain chain;              // where they are, or are read from, unless a block read does
  Tier* insert_into = nullptr;    // the tier that takes them, once they are verified
  std::uint8_t ends_left = 1;     // of its decoding, and of its way into a tier on disk
};

// One lane's part of a step in work. Lives until handed over, or until the engine dies: completions
// point at it.
struct StepWork {
  std::uint64_t deadline = 0;  // of the first of its tasks
  std::uint32_t lane = 0;      // its number
  Step plan;                   // deliveries are the lane's; reads and releases are gone
  // Where there are several lanes: stored bytes of its samples ...
  std::uint64_t stored_bytes = 0;
  std::uint64_t issued_bytes = 0;    // ... of those whose reads were issued ...
  std::uint64_t decoding_bytes = 0;  // ... and that executors have to decode
  std::uint64_t copying_bytes = 0;   // of rows that tasks of WarmRows have
  std::shared_ptr<Batch> batch;
  std::vector<SampleWork> samples;              // by slot
  std::vector<StoredPiece> pieces;              // [slot][stored field]
  std::vector<std::unique_ptr<RowRead>> reads;  // so far, also those that ended
  std::uint64_t samples_left = 0;               // not done
  std::uint64_t samples_unread = 0;             // of those, with pieces left
  // Of those, that tasks have, which decode what they read: none of them waits for a device. Any
  // thread.
  std::atomic<std::uint64_t> samples_tried = 0;
  std::optional<std::pair<std::uint32_t, Status>> error;  // of the lowest slot that failed

  // Of a read or task that comes when `bytes` of stored_bytes are taken care of.
  [[nodiscard]] std::uint64_t Deadline(std::uint64_t bytes) const {
    if (stored_bytes == 0) return deadline;
    const double part = static_cast<double>(bytes) / static_cast<double>(stored_bytes);
    return deadline + static_cast<std::uint64_t>(std::min(part, 1.0) * (kDeadlinesOfStep - 1));
  }

  // The bytes of `count` more samples are there.
  void MarkRead(std::int64_t now_ns, std::uint64_t count = 1) {
    samples_unread -= count;
    if (samples_unread == 0) batch->times.read_ns = now_ns;
  }
  // One more sample is done.
  void MarkDone(std::int64_t now_ns) {
    if (--samples_left == 0) batch->times.done_ns = now_ns;
  }
};

// Decodes some samples of a step, all read, on one thread.
struct DecodeTask {
  StepWork* work = nullptr;
  std::uint64_t deadline = 0;                       // of `reads`
  std::vector<RowRead*> reads;                      // to be read first, where that takes no device
  std::vector<std::unique_ptr<std::byte[]>> bytes;  // of those without room of their own
  std::vector<std::uint32_t> slots;
  std::vector<std::pair<std::uint32_t, Status>> failures;
  std::vector<std::pair<std::uint32_t, Status>> inserted;  // by slot: what a tier in memory said
  std::vector<std::pair<std::uint32_t, std::uint64_t>> large;  // left for later: slot, bytes needed
  ScratchLease lease;  // held by the one sample of a large task
  std::uint64_t stored_bytes = 0;
  std::uint64_t copied_bytes = 0;  // LaneStats::copied_bytes
  std::int64_t decode_ns = 0;
  int threads = 1;  // that decoded meanwhile, this one among them
};

}  // namespace headrace
