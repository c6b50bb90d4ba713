#pragma once

// What engine.cc and engine_samples.cc share: the records of work in progress.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace headrace {

// One stored field of one row: `field` is a position in Engine::stored_fields_.
struct Engine::PieceRef {
  std::uint32_t slot = 0;
  std::uint32_t field = 0;
};

// One read, of one or several pieces that lie near each other.
struct Engine::ReadUnit {
  StepWork* work = nullptr;
  Extent extent;
  std::vector<PieceRef> pieces;
  std::uint64_t pieces_left = 0;  // whose sample is not done; at 0 the staging memory goes back
  Buffer buffer;                  // staging memory, from issue on
  std::span<std::byte> in_place;  // instead of staging memory: the room of its one row
  std::span<std::byte> data;      // of the extent, once read
};

// Tells of one piece where its bytes are.
struct Engine::Piece {
  ReadUnit* unit = nullptr;  // null before the read is planned
  std::uint64_t offset = 0;  // in the unit's data
  std::uint64_t size = 0;
};

struct SampleWork {
  std::uint32_t pieces_left = 0;  // not read
  std::uint32_t draws = 0;        // substitutes tried
  Status read_error;              // of the first piece that failed
  Status reason;                  // why it is not the sample that was wanted
};

// One step in work. Lives until handed over, or until the engine dies: completions point at it.
struct Engine::StepWork {
  std::uint64_t sequence = 0;  // deadline of its tasks
  Step plan;
  std::shared_ptr<Batch> batch;
  std::vector<SampleWork> samples;                        // by slot
  std::vector<Piece> pieces;                              // [slot][stored field]
  std::vector<std::unique_ptr<ReadUnit>> units;           // all there ever were
  std::uint64_t samples_left = 0;                         // not done
  std::uint64_t samples_unread = 0;                       // of those, with pieces left
  std::optional<std::pair<std::uint32_t, Status>> error;  // of the lowest slot that failed
};

// Decodes some samples of a step, all read, on one thread.
struct Engine::DecodeTask {
  StepWork* work = nullptr;
  std::vector<std::uint32_t> slots;
  std::vector<std::pair<std::uint32_t, Status>> failures;
  std::uint64_t stored_bytes = 0;
  std::int64_t decode_ns = 0;
};

struct Engine::Event {
  // kDone: read and decoded at once.
  enum class Kind : std::uint8_t { kStart, kRead, kDecoded, kDone, kTaken, kWaiting, kReleased };

  Kind kind = Kind::kStart;
  std::int64_t time_ns = 0;                                   // kWaiting
  ReadUnit* unit = nullptr;                                   // kRead, kDone
  Result<std::span<std::byte>> data{std::span<std::byte>()};  // kRead
  std::unique_ptr<DecodeTask> task;                           // kDecoded, kDone
};

}  // namespace headrace
