#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/redox_order.h"

namespace headrace {

// Where samples may lie under the `redox` order: what its protocol never changes.
//
// Physical chunks (the blocks) fall into virtual chunks. A position of a chunk belongs to one of
// its virtual chunk's *slots*; a slot has so many *places* as its longest chunk has positions in
// it: one with `slot_classes` of 0, as in the papers. Slots are numbered through all virtual
// chunks, and so are places.
//
// Thread safety: const methods from any thread. Memory: 4 bytes a sample, 4 more unless each takes
// one unit, and about 24 bytes a slot.
class RedoxLayout {
 public:
  // Chunks chunk, chunk + stride, ...: `chunk_count` of them.
  struct Virtual {
    std::uint32_t chunk = 0;
    std::uint32_t stride = 1;
    std::uint32_t chunk_count = 0;
    std::uint32_t width = 0;  // positions of the longest
    std::uint32_t home = 0;   // node
    std::uint32_t first_slot = 0;
    std::uint32_t slot_count = 0;
    std::uint64_t first_full = 0;   // of a bit for each slot
    std::uint64_t first_word = 0;   // of a bit for each position, `words` for each chunk
    std::uint64_t first_share = 0;  // of a number for each slot of each chunk

    [[nodiscard]] std::uint32_t words() const { return (width + 63) / 64; }
  };
  struct Slot {
    std::uint32_t virtual_chunk = 0;
    std::uint32_t first_place = 0;
    std::uint32_t places = 0;
  };

  // Errors: InvalidArgument  2^32 samples or more, or blocks of another number of samples than the
  //                          job
  static Result<std::shared_ptr<const RedoxLayout>> Make(const RedoxOrderOptions& options);

  [[nodiscard]] std::uint32_t sample_count() const {
    return static_cast<std::uint32_t>(slot_of_.size());
  }
  [[nodiscard]] std::uint32_t chunk_count() const { return chunk_count_; }
  [[nodiscard]] std::uint32_t place_count() const { return place_count_; }
  [[nodiscard]] std::uint64_t word_count() const { return word_count_; }
  [[nodiscard]] std::uint64_t full_count() const { return full_count_; }
  [[nodiscard]] std::uint64_t share_count() const { return share_count_; }
  [[nodiscard]] std::span<const Virtual> virtual_chunks() const { return virtual_chunks_; }
  [[nodiscard]] std::span<const Slot> slots() const { return slots_; }
  [[nodiscard]] const BlockMap& blocks() const { return *blocks_; }

  [[nodiscard]] std::uint32_t slot_of(std::uint32_t sample) const { return slot_of_[sample]; }
  [[nodiscard]] const Virtual& virtual_of(std::uint32_t slot) const {
    return virtual_chunks_[slots_[slot].virtual_chunk];
  }
  [[nodiscard]] std::uint32_t units(std::uint32_t sample) const {
    return units_.empty() ? 1 : units_[sample];
  }
  [[nodiscard]] std::uint32_t largest_sample() const { return largest_sample_; }  // units

  // Slots of a chunk that are classes of several positions, `classes` apart; 0: each is a position.
  [[nodiscard]] std::uint32_t classes() const { return classes_; }

  // Units that the places of one home take at most: each the largest sample that can lie in it.
  [[nodiscard]] std::vector<std::uint64_t> UnitsOfHomes(std::uint32_t nodes) const;

 private:
  explicit RedoxLayout(const RedoxOrderOptions& options);
  void MakeVirtualChunks(const RedoxOrderOptions& options);
  void MakeSlots();

  std::shared_ptr<const BlockMap> blocks_;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t place_count_ = 0;
  std::uint32_t classes_ = 0;
  std::uint64_t full_count_ = 0;
  std::uint64_t word_count_ = 0;
  std::uint64_t share_count_ = 0;
  std::uint32_t largest_sample_ = 1;
  std::vector<Virtual> virtual_chunks_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> slot_of_;  // of each sample
  std::vector<std::uint32_t> units_;    // of each sample; empty: all 1
};

}  // namespace headrace
