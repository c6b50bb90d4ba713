#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"

namespace headrace {

// The nodes that the blocks of the `epoch` order lie on: their *homes*. Immutable.
//
// Memory: 16 bytes a home; with a table 8 bytes a block, too.
class EpochHomes {
 public:
  // The blocks of one home, ascending. Valid as long as the EpochHomes is.
  class Blocks {
   public:
    // The blocks first, first + stride, ... of `size`; or those of `table`, if it is not null.
    Blocks(std::uint64_t first, std::uint64_t stride, std::uint64_t size,
           const std::vector<std::uint64_t>* table)
        : first_(first), stride_(stride), size_(size), table_(table) {}

    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] std::uint64_t At(std::uint64_t index) const {
      return table_ == nullptr ? first_ + index * stride_ : (*table_)[index];
    }

   private:
    std::uint64_t first_;
    std::uint64_t stride_;
    std::uint64_t size_;
    const std::vector<std::uint64_t>* table_;
  };

  // `table`: the node of each sample, below `count`; one for all samples of a block. Null: block b
  // is at home on node b mod count. `count` is at least 1.
  //
  // Errors: InvalidArgument  a table of the wrong length, a node that is not below `count`, a block
  //                          on two nodes, or a home without a block
  static Result<std::shared_ptr<const EpochHomes>> Make(const BlockMap& blocks, std::uint32_t count,
                                                        const SampleTable& table);

  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(samples_.size()); }
  [[nodiscard]] Blocks blocks(std::uint32_t home) const;
  // Samples of each home.
  [[nodiscard]] const std::vector<std::uint64_t>& samples() const { return samples_; }
  [[nodiscard]] std::uint64_t most_samples() const;  // of a home
  // The home with the fewest blocks; of equal ones the first.
  [[nodiscard]] std::uint32_t least_home() const;

 private:
  EpochHomes() = default;
  Status ReadTable(const BlockMap& blocks, const std::vector<std::uint32_t>& table);

  std::uint64_t block_count_ = 0;
  std::vector<std::uint64_t> samples_;
  std::vector<std::vector<std::uint64_t>> tables_;  // of each home; empty: no table
};

// The home of each position of an epoch, in proportion to the homes' samples: sample j of a home
// with n of them stands at (j + 1/2) / n of the epoch, of equal ones the lower home's first. Homes
// of equal size take turns.
//
// Thread safety: none.
class HomeTurns {
 public:
  // `samples` of each home, at least 1. Starts at position 0.
  explicit HomeTurns(std::vector<std::uint64_t> samples);

  // Goes to a position, at most the number of all samples. Takes O(H log H) for H homes.
  void Seek(std::uint64_t position);
  // The home of the current position, which must be below the number of all samples.
  [[nodiscard]] std::uint32_t home() const { return heap_.front().home; }
  void Advance();
  // Positions of each home before the current one.
  [[nodiscard]] const std::vector<std::uint64_t>& taken() const { return taken_; }

 private:
  struct Entry {
    std::uint64_t turn = 0;     // 2 * j + 1, of its next sample j
    std::uint64_t samples = 0;  // of the home
    std::uint32_t home = 0;
  };

  static bool Before(const Entry& a, const Entry& b);
  void Sink(std::size_t at);

  const std::vector<std::uint64_t> samples_;
  std::uint64_t total_ = 0;
  std::vector<std::uint64_t> taken_;
  std::vector<Entry> heap_;  // the next one first
};

}  // namespace headrace
