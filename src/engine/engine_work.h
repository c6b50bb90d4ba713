#pragma once

// What the sources of Engine share: the records of work in progress.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/lanes/stall_meter.h"

namespace headrace {

// The sample that a block read keeps in place `kept`.
inline SampleId KeptSampleId(const BlockRead& read, std::uint32_t kept) {
  return SampleId{Raw(read.first) + (read.kept.empty() ? kept : read.kept[kept])};
}

// Deadlines of tasks: first by step, then by the part of their lane's work that comes before them.
inline constexpr std::uint64_t kDeadlinesOfStep = std::uint64_t{1} << 16;
inline std::uint64_t FirstDeadline(std::uint64_t sequence) { return sequence * kDeadlinesOfStep; }
inline std::uint64_t LastDeadline(std::uint64_t sequence) {
  return sequence * kDeadlinesOfStep + kDeadlinesOfStep - 1;
}

// Takes what `bytes` took into an average of lately, an eighth of which is the newest.
inline void Learn(std::int64_t ns, std::uint64_t bytes, double& ns_per_byte) {
  if (ns <= 0 || bytes == 0) return;
  const double now = static_cast<double>(ns) / static_cast<double>(bytes);
  ns_per_byte = ns_per_byte == 0 ? now : ns_per_byte + (now - ns_per_byte) / 8;
}

// One stored field of one row: `field` is a position in Engine::stored_fields_.
struct Engine::PieceRef {
  std::uint32_t slot = 0;
  std::uint32_t field = 0;
};

// One read of rows: one or several pieces that lie near each other, or the entry of one sample.
struct Engine::ReadUnit : Fetch {
  StepWork* work = nullptr;
  std::vector<PieceRef> pieces;
  std::uint64_t pieces_left = 0;  // whose sample is not done; at 0 the staging memory goes back
  std::int64_t issued_ns = 0;
  bool tried = false;     // with ReadNow()
  bool outlasts = false;  // the unit lives longer than its task: it needs staging memory

  [[nodiscard]] bool MayBeTried() const {
    return entry == nullptr && extent.range.size > 0 && !tried;
  }
  // Whether a try needs no staging memory: a small sample that nobody needs once it is decoded.
  [[nodiscard]] bool InOneGo(std::uint64_t bytes_max) const;
};

// One row of a step, from planned to done.
struct Engine::SampleWork {
  std::uint32_t pieces_left = 0;  // not read
  std::uint32_t draws = 0;        // substitutes tried
  Status read_error;              // of the first piece that failed
  Status reason;                  // why it is not the sample that was wanted
  CellRun cells = kNoCells;       // where its bytes are, if a block read brought them
  Tier::Pin entry;                // where they are, or are read from, if a tier has them
  Tier* keep = nullptr;           // the tier that takes them, once they are verified
  std::uint8_t ends_left = 1;     // of its decoding, and of its way into a tier on disk
};

// One lane's part of a step in work. Lives until handed over, or until the engine dies: completions
// point at it.
struct Engine::StepWork {
  std::uint64_t deadline = 0;  // of the first of its tasks
  Lane* lane = nullptr;
  Step plan;  // deliveries are the lane's; reads and releases are gone
  // Where there are several lanes: stored bytes of its samples ...
  std::uint64_t stored_bytes = 0;
  std::uint64_t issued_bytes = 0;    // ... of those whose reads were issued ...
  std::uint64_t decoding_bytes = 0;  // ... and that executors have to decode
  std::shared_ptr<Batch> batch;
  std::vector<SampleWork> samples;               // by slot
  std::vector<Piece> pieces;                     // [slot][stored field]
  std::vector<std::unique_ptr<ReadUnit>> units;  // all there ever were
  std::uint64_t samples_left = 0;                // not done
  std::uint64_t samples_unread = 0;              // of those, with pieces left
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
struct Engine::DecodeTask {
  StepWork* work = nullptr;
  std::uint64_t deadline = 0;                       // of `units`
  std::vector<ReadUnit*> units;                     // to be read first, where that takes no device
  std::vector<std::unique_ptr<std::byte[]>> bytes;  // of those without room of their own
  std::vector<std::uint32_t> slots;
  std::vector<std::pair<std::uint32_t, Status>> failures;
  std::vector<std::pair<std::uint32_t, Status>> kept;  // by slot: what a tier in memory said
  std::vector<std::pair<std::uint32_t, std::uint64_t>> large;  // left for later: slot, bytes needed
  ScratchLease lease;  // held by the one sample of a large task
  std::uint64_t stored_bytes = 0;
  std::uint64_t copied_bytes = 0;  // LaneStats::copied_bytes
  std::int64_t decode_ns = 0;
  int threads = 1;  // that decoded meanwhile, this one among them

  // Where to try to read to: without staging memory the row itself, if that holds what is stored,
  // or memory of the task's. `position` is that of its one stored field.
  std::span<std::byte> RoomOf(const ReadUnit& unit, std::span<const BatchField> schema,
                              std::size_t position);
};

// One rank's place.
struct Engine::Lane {
  std::uint32_t number = 0;
  EngineLane parts;
  Step next;                          // its part of next_step_ ...
  std::shared_ptr<Batch> next_batch;  // ... once there was memory
  std::deque<std::unique_ptr<StepWork>> steps;
  // Planned and not issued: groups of reads whose memory is taken together.
  std::deque<std::vector<ReadUnit*>> to_read;
  std::deque<std::unique_ptr<DecodeTask>> to_decode;  // beyond its share
  std::uint32_t reads_in_flight = 0;
  std::uint32_t decodes_in_flight = 0;
  std::uint64_t ready = 0;      // handed over, not taken
  bool without_memory = false;  // for its next read, where it has staging memory of its own
  bool ended = false;           // its sink received the end, or its consumer is gone
  StallMeter consumer;
  std::int64_t done_ns = 0;  // when the batch handed over last was done
  // As it went lately; 0: unknown.
  double read_ns_per_byte = 0;
  double decode_ns_per_byte = 0;
  LaneStats stats;  // without what stats() adds
};

// One read of a TierFill.
struct Engine::FillRead : Fetch {
  TierFill* fill = nullptr;
};

// A sample on its way into a tier that nobody waits for: fetched ahead of its first use, or moved
// from another tier.
struct Engine::TierFill {
  SampleId sample{};
  Tier* to = nullptr;
  Tier::Pin from;               // empty: storage
  std::vector<FillRead> reads;  // one a stored field, or one of the entry that is moved
  std::size_t reads_left = 0;
  Status error;
};

// A sample that a block read keeps, until it is the row's that waits for it.
struct Engine::KeptSample {
  enum class State : std::uint8_t {
    kExpected,  // its bytes are not all there
    kUnwanted,  // the same, and nobody will ask for them
    kResident,  // in cells
    kFailed,    // BlockWork::failures has the error
    kGone,      // delivered or released
  };

  static constexpr std::uint32_t kLarge = 0xffff'ffff;

  CellRun cells = kNoCells;
  std::uint32_t waiter = 0;       // 1 + its place in BlockWork::waiters; 0: none yet
  std::uint32_t bytes = 0;        // stored; kLarge: ask the index
  std::uint16_t pieces_left = 0;  // not copied to its cells
  State state = State::kExpected;
};

// A piece of a block unit: one stored field of one kept sample.
struct Engine::BlockPiece {
  Extent extent;
  SampleId sample{};
  std::uint32_t kept = 0;   // position in BlockWork::samples
  std::uint32_t field = 0;  // in Engine::stored_fields_
  std::uint64_t cells_offset = 0;
  const std::byte* pinned = nullptr;  // where its bytes are, if not in the unit's data
  const Tier::Pin* entry = nullptr;   // of its sample in a tier, which holds it as the cells do
};

// A sample of a block unit that a tier is to take: its pieces, in the order of fields.
struct Engine::BlockKeep {
  SampleId sample{};
  Tier* tier = nullptr;
  std::vector<std::size_t> pieces;  // positions in BlockUnit::pieces
  Status status{StatusCode::kCancelled, "not tried"};
};

// One read of a block read, or a stretch of it that is pinned.
struct Engine::BlockUnit : Fetch {
  BlockWork* block = nullptr;
  std::vector<BlockPiece> pieces;                        // by place
  std::vector<std::pair<std::size_t, Status>> failures;  // by position in `pieces`, ascending
  std::vector<BlockKeep> keeps;                          // samples that a tier takes
  std::uint64_t ends_left = 1;                           // of copying, and of ways into tiers
  bool is_pinned = false;                                // there is nothing to read
  bool reading = false;                                  // counted as a read in flight
};

// A block read of the plan. Lives from its step's admission until every sample that it keeps is
// gone and none of its reads is in flight.
struct Engine::BlockWork {
  std::uint64_t deadline = 0;  // of its step
  BlockRead plan;
  std::vector<KeptSample> samples;                // the kept ones, in order
  std::vector<Row> waiters;                       // for samples to come
  std::map<std::uint32_t, Status> failures;       // by position in `samples`
  std::vector<Tier::Pin> entries;                 // by position in `samples`; none: no tiers
  std::vector<std::unique_ptr<BlockUnit>> units;  // planned and not all done
  std::vector<std::uint32_t> demand;              // cells by sample, until taken
  std::uint64_t demand_units = 0;                 // sum of those
  std::uint64_t samples_left = 0;                 // not gone
  std::uint64_t units_left = 0;                   // not done
  bool planned = false;
  bool pinning = false;  // its reads go to pinned memory
};

struct Engine::Event {
  // From kFetched on what was in flight comes back.
  enum class Kind : std::uint8_t {
    kStart,
    kTaken,
    kWaiting,
    kLeft,
    kReleased,
    kFetched,  // a read has ended
    kMissed,   // a device is needed to read it
    kDecoded,
    kDone,    // read and decoded at once
    kCopied,  // a block unit is in cells, or a sample of it is in a tier
    kKept,    // a row's sample is in a tier, or not
    kFilled,  // a fill is in its tier, or not
  };

  Kind kind = Kind::kStart;
  std::int64_t time_ns = 0;                                   // kTaken, kWaiting
  std::uint32_t lane = 0;                                     // kTaken, kWaiting, kLeft
  Fetch* fetch = nullptr;                                     // kFetched
  ReadUnit* unit = nullptr;                                   // kMissed
  BlockUnit* block_unit = nullptr;                            // kCopied
  Result<std::span<std::byte>> data{std::span<std::byte>()};  // kFetched; else an error or nothing
  std::unique_ptr<DecodeTask> task;                           // kDecoded, kDone
  Row row{};                                                  // kKept
  TierFill* fill = nullptr;                                   // kFilled

  // What was in flight and is not any more.
  [[nodiscard]] std::size_t completions() const {
    return kind == Kind::kDone ? task->slots.size() : std::size_t{kind >= Kind::kFetched};
  }
};

}  // namespace headrace
