#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "plan/block_map.h"
#include "plan/epoch/epoch_homes.h"
#include "plan/order.h"
#include "plan/permutation.h"

namespace headrace {

// Assigns the samples of an epoch to the pools of one home of the `epoch` order: its position g is
// drawn from pool g mod pools. The home's sequence of samples is cut into one stretch a pool, as
// long as the pool has positions.
struct EpochStretches {
  std::uint64_t delivered = 0;  // samples of an epoch, without dropped ones
  std::uint64_t pools = 1;

  [[nodiscard]] std::uint64_t Length(std::uint64_t pool) const {
    return delivered / pools + (pool < delivered % pools ? 1 : 0);
  }
  [[nodiscard]] std::uint64_t Begin(std::uint64_t pool) const {
    return pool * (delivered / pools) + std::min(pool, delivered % pools);
  }
};

// The blocks of one home and epoch end to end, cut into the stretches of its pools. A block on a
// cut is divided into two pieces. Immutable. Memory: 4 bytes a block and 16 a pool.
class EpochSequence {
 public:
  // Consecutive samples of one block.
  struct Piece {
    SampleId first{};
    std::uint32_t count = 0;
  };

  // Iterates over the pieces of one stretch.
  struct Cursor {
    std::uint64_t at = 0;      // the next block, in the order of the epoch
    std::uint32_t offset = 0;  // the next sample in it
    std::uint64_t left = 0;    // samples not yet taken
  };

  // `order`: the epoch's order of the home's blocks.
  EpochSequence(const BlockMap& blocks, EpochHomes::Blocks own, const EpochStretches& stretches,
                Permutation order);

  [[nodiscard]] Cursor Begin(std::uint64_t pool) const;
  // The next piece; there must be samples left.
  [[nodiscard]] Piece Take(Cursor* cursor) const;

 private:
  struct Start {
    std::uint64_t at = 0;
    std::uint32_t offset = 0;
  };

  [[nodiscard]] BlockMap::Block Block(std::uint64_t at) const {
    return blocks_.block(own_.At(permutation_.At(at)));
  }

  const BlockMap& blocks_;
  const EpochHomes::Blocks own_;
  const EpochStretches stretches_;
  const Permutation permutation_;
  std::vector<Start> starts_;  // the start of each pool's stretch
};

// The data shared by all pools of a home, and the sequences of two neighbouring epochs: the one
// that is drawn from and the one that fills meanwhile. Makes a sequence on first use. Not
// thread-safe.
class EpochPoolPlan {
 public:
  struct Options {
    std::shared_ptr<const BlockMap> blocks;
    std::uint64_t seed = 0;
    std::uint64_t bijection_from = 0;  // OrderOptions::bijection_from
    EpochStretches stretches;
    std::shared_ptr<const EpochHomes> homes;  // null: one home
    std::uint32_t home = 0;
    std::uint64_t budget = 0;            // units of one pool
    std::uint64_t full_join = 0;         // units that join before an epoch's first draw
    std::uint64_t full_join_of_run = 0;  // the same before the run's first draw
    std::uint64_t first_join = 0;        // draws of the run, while the rest joins; 0: one a draw
    std::uint64_t delay = 0;             // draws from a piece's issue until it joins
  };

  explicit EpochPoolPlan(Options options) : options_(std::move(options)) {}

  [[nodiscard]] const Options& options() const { return options_; }
  // Of a pool of the home among all pools of the job: pool p belongs to home p mod homes.
  [[nodiscard]] std::uint64_t Number(std::uint64_t pool) const {
    return options_.homes == nullptr ? pool : pool * options_.homes->count() + options_.home;
  }
  // Valid until an epoch other than this one and its neighbours is asked for.
  const EpochSequence& Sequence(std::uint64_t epoch);
  // The draw at which a piece of the first fill joins. `units`: of the first fill up to its end.
  [[nodiscard]] std::uint64_t FirstFillJoin(std::uint64_t epoch, std::uint64_t units) const;

 private:
  struct Made {
    std::uint64_t epoch;
    EpochSequence sequence;
  };

  const Options options_;
  std::array<std::optional<Made>, 2> made_;  // the sequence of epoch e at e mod 2
};

// One pool of the `epoch` order. Pieces of blocks are issued while the budget holds them and join
// some draws later; every draw takes one of the joined samples, uniformly. docs/orders.md has the
// rules, to the bit.
//
// Thread safety: none.
// Memory: 8 bytes a resident sample, 4 more if sizes differ, 64 a resident piece.
class EpochPool {
 public:
  struct Drawn {
    SampleId sample{};
    std::uint64_t block_read = 0;
    std::uint64_t units = 0;
  };

  // Samples of one piece that are resident.
  struct Resident {
    BlockRead read;             // numbered in the order of issue
    std::uint64_t join = 0;     // draw at which it joins, counted from this epoch's first; 0: has
    std::uint64_t ordinal = 0;  // in the order of issue
    std::uint32_t piece = 0;    // for SetNumber()
  };

  // `pool`: among those of its home. Starts at the beginning of `epoch`, empty. Does not issue
  // pieces of `end_epoch` or later. `plan` outlives this.
  EpochPool(EpochPoolPlan* plan, std::uint64_t pool, std::uint64_t epoch, std::uint64_t end_epoch);

  // Whether the budget holds the next piece. While it does, issue it before a draw.
  [[nodiscard]] bool CanIssue() const { return next_units_ <= budget_ - resident_; }
  BlockRead Issue(std::uint64_t number);
  // Draws one sample in three parts, so that the memory accesses of several pools overlap: call
  // each part for several pools before the next part. Choose() lets due pieces join; the epoch must
  // have a draw left, and nothing may be issued until Take().
  void Choose();
  void Locate();
  Drawn Take();
  Drawn Draw() {
    Choose();
    return Take();
  }
  // Call after the last draw of an epoch, unless it is the last epoch.
  void BeginNextEpoch();

  [[nodiscard]] std::uint64_t resident_units() const { return resident_; }
  [[nodiscard]] std::uint64_t issued() const { return issued_; }  // pieces, since it was made
  [[nodiscard]] std::uint64_t early_joins() const { return early_joins_; }
  [[nodiscard]] std::vector<Resident> Residents() const;  // in the order of issue
  void SetNumber(std::uint32_t piece, std::uint64_t number) { pieces_[piece].number = number; }

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  struct alignas(64) Piece {  // one cache line
    std::uint64_t first = 0;
    std::uint64_t number = 0;
    std::uint32_t count = 0;
    std::uint32_t left = 0;            // resident samples
    std::uint32_t each = 0;            // units of every sample; 0: see `units`
    std::vector<std::uint32_t> units;  // of each sample
    std::uint64_t ordinal = 0;
  };
  struct Entry {
    std::uint32_t piece = 0;
    std::uint32_t offset = 0;
  };
  struct Waiting {
    std::uint64_t epoch = 0;
    std::uint64_t join = 0;
    std::uint32_t piece = 0;
  };

  void PrepareNext();
  void JoinFirstWaiting();
  void UpdateDue();

  // Fields used by every draw come first.
  std::uint64_t budget_;
  std::uint64_t resident_ = 0;         // units issued and not yet drawn
  std::uint64_t next_units_ = kNever;  // of the next piece; kNever: there is none
  std::uint64_t draw_ = 0;             // in this epoch
  std::uint64_t due_ = kNever;         // when the first waiting piece of this epoch joins
  std::uint64_t chosen_ = 0;           // position in joined_, from Choose() to Take()
  std::vector<Entry> joined_;
  std::vector<Piece> pieces_;  // entries with left == 0 are free, except the next one
  Prng words_;

  std::vector<std::uint32_t> free_;
  std::deque<Waiting> waiting_;  // in the order of issue; the next epoch's at the end
  std::uint64_t issued_ = 0;
  std::uint64_t early_joins_ = 0;

  EpochPoolPlan* const plan_;
  const std::uint64_t pool_;
  const std::uint64_t end_epoch_;
  std::uint64_t epoch_;            // the epoch that is drawn from
  std::uint64_t issue_epoch_;      // the epoch that is issued: this one or the next
  EpochSequence::Cursor cursor_;   // after the next piece
  std::uint32_t next_ = 0;         // the next piece, unless next_units_ is kNever
  std::uint64_t issue_units_ = 0;  // issued of issue_epoch_
  std::uint64_t last_join_ = 0;    // when the last piece issued of issue_epoch_ joins
};

// Enters pools in mid-epoch, and reads again what is resident in them then.
//
// Thread safety: none.
class EnteredPools {
 public:
  // Draws `draws` samples of a new pool, and issues what it then holds. `first_step`: the step
  // entered is the epoch's first. Returns how many pieces joined early. Without `reads` the pool is
  // not read by this stream.
  std::uint64_t Enter(EpochPool* pool, std::uint64_t draws, bool first_step, bool reads = true);

  // Reads of all that is resident, sorted by when they join, over all pools. Numbers them from
  // *number on.
  std::vector<BlockRead> Reads(std::uint64_t* number);

 private:
  struct Read {
    EpochPool::Resident resident;
    EpochPool* pool = nullptr;
    std::size_t turn = 0;  // of the pool
  };

  std::vector<Read> reads_;
  std::size_t pools_ = 0;
};

}  // namespace headrace
