#pragma once

// Block reads in work: records of engine/blocks/.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/cell_pool.h"
#include "engine/loop/loop_context.h"
#include "fetch/fetch.h"
#include "fetch/sample_chain.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "plan/order.h"
#include "tier/tier.h"

namespace headrace {

// A sample that a block read keeps, until the row that waits for it takes it.
struct KeptSample {
  enum class State : std::uint8_t {
    kExpected,  // not all of its bytes were read
    kUnwanted,  // the same, and nobody will take it
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

// A piece of a block part: one stored field of one kept sample.
struct BlockPiece {
  Extent extent;
  SampleId sample{};
  std::uint32_t place = 0;  // position in BlockWork::samples
  std::uint32_t field = 0;  // in the stored ones
  std::uint64_t cells_offset = 0;
  std::uint64_t parcel_offset = 0;               // in the part of a parcel that it comes with
  const std::byte* from_pinned_block = nullptr;  // its bytes, if one has them
  const Tier::EntryRef* entry = nullptr;  // of its sample in a tier, which holds it as the cells do
};

// A sample of a block part that a tier is to take: its pieces, in the order of fields.
struct BlockInsert {
  SampleId sample{};
  Tier* tier = nullptr;
  std::vector<std::size_t> pieces;  // positions in BlockPart::pieces
  Status status{StatusCode::kCancelled, "not tried"};
};

struct BlockWork;

// One read of a block read: of storage, of a tier's entry, of a sample of another node, of a part
// of a parcel; or those of its pieces that are in memory.
struct BlockPart : Fetch {
  BlockWork* block = nullptr;
  std::vector<BlockPiece> pieces;                        // by offset
  std::vector<std::pair<std::size_t, Status>> failures;  // by position in `pieces`, ascending
  std::vector<BlockInsert> inserts;                      // samples that a tier takes
  std::uint64_t ends_left = 1;                           // of copying, and of ways into tiers
  bool in_memory = false;                                // there is nothing to read
  bool reading = false;                                  // counted as a read in flight

  // Whether storage gives its pieces if its own source does not.
  [[nodiscard]] bool has_next_source() const {
    return HasNextSource(from) || pieces.front().entry != nullptr;
  }
  [[nodiscard]] bool of_parcel() const { return std::holds_alternative<PartAtNode>(from); }
  // Where the bytes of a piece lie in what was read: an entry, and a sample of another node, is
  // laid out as the cells are.
  [[nodiscard]] std::span<const std::byte> BytesOf(const BlockPiece& piece) const {
    const ByteRange range = piece.extent.range;
    if (of_parcel()) return data.subspan(piece.parcel_offset, range.size);
    const bool as_cells = !in_storage() || piece.entry != nullptr;
    return data.subspan(as_cells ? piece.cells_offset : range.offset - extent().range.offset,
                        range.size);
  }
};

// A block read of the plan. Lives from its step's admission until every sample that it keeps is
// gone and none of its reads is in flight.
struct BlockWork {
  std::uint64_t deadline = 0;  // of its step
  BlockRead plan;
  std::vector<KeptSample> samples;                // the kept ones, in order
  std::vector<RowRef> waiters;                    // for samples to come
  std::map<std::uint32_t, Status> failures;       // by position in `samples`
  std::vector<Tier::EntryRef> entries;            // by position in `samples`; none: no tiers
  std::optional<Holders> nodes;                   // other nodes that have it, as the plan says
  std::vector<std::unique_ptr<BlockPart>> parts;  // planned and not all done
  std::vector<std::uint32_t> demand;              // cells by sample, until taken
  std::uint64_t demand_cells = 0;                 // sum of those
  std::uint64_t samples_left = 0;                 // not gone
  std::uint64_t parts_left = 0;                   // not done
  bool planned = false;
  bool in_storage = false;    // the page cache holds them: rows read them there; no `samples`
  bool to_be_pinned = false;  // its reads go to memory of pinned blocks
};

}  // namespace headrace
