#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "papers/redox/redox_order.h"

namespace headrace {

// The places of samples under the `redox` order: the fixed part of its protocol.
//
// Physical chunks (the blocks) form virtual chunks. A position of a chunk belongs to one of its
// virtual chunk's *slots*. A slot has one *place* for each position that its longest chunk has in
// it: one place if `slot_classes` is 0, as in the papers. Slots and places are numbered
// consecutively over all virtual chunks.
//
// Thread safety: const methods from any thread.
// Memory: 4 bytes a sample, 4 more unless each takes one unit, about 16 bytes a slot, 4 a chunk.
class RedoxLayout {
 public:
  struct Virtual {
    std::uint32_t first_member = 0;
    std::uint32_t chunk_count = 0;  // its members: see chunk()
    std::uint32_t width = 0;        // positions of the longest chunk
    std::uint32_t home = 0;         // node
    std::uint32_t first_slot = 0;
    std::uint32_t slot_count = 0;
    std::uint64_t first_full = 0;   // bits, one for each slot
    std::uint64_t first_word = 0;   // bits, one for each position, `words` for each chunk
    std::uint64_t first_share = 0;  // numbers, one for each slot of each chunk

    [[nodiscard]] std::uint32_t words() const { return (width + 63) / 64; }
    // The slot of a position of its chunks.
    [[nodiscard]] std::uint32_t SlotOf(std::uint32_t position) const {
      return first_slot + (position < slot_count ? position : position % slot_count);
    }
  };
  struct Slot {
    std::uint32_t virtual_chunk = 0;
    std::uint32_t first_place = 0;
    std::uint32_t places = 0;
    std::uint32_t home = 0;  // node
  };

  // The layout of an epoch: with options.remap each has its own.
  //
  // Errors: InvalidArgument  2^32 samples or more, or blocks whose sample count is not the job's;
  //                          homes that are not one node for each block
  static Result<std::shared_ptr<const RedoxLayout>> Make(const RedoxOrderOptions& options,
                                                         std::uint64_t epoch = 0);

  [[nodiscard]] std::uint32_t sample_count() const {
    return static_cast<std::uint32_t>(slot_of_.size());
  }
  [[nodiscard]] std::span<const std::uint32_t> slots_of_samples() const { return slot_of_; }
  [[nodiscard]] std::uint32_t chunk_count() const { return chunk_count_; }
  [[nodiscard]] std::uint32_t place_count() const { return place_count_; }
  [[nodiscard]] std::uint64_t word_count() const { return word_count_; }
  [[nodiscard]] std::uint64_t full_count() const { return full_count_; }
  [[nodiscard]] std::uint64_t share_count() const { return share_count_; }
  [[nodiscard]] std::span<const Virtual> virtual_chunks() const { return virtual_chunks_; }
  [[nodiscard]] std::span<const Slot> slots() const { return slots_; }
  [[nodiscard]] const BlockMap& blocks() const { return *blocks_; }
  // Member 0, 1, ... of a virtual chunk: a physical chunk.
  [[nodiscard]] std::uint32_t chunk(const Virtual& of, std::uint32_t member) const {
    return members_[of.first_member + member];
  }

  [[nodiscard]] const Virtual& virtual_of(std::uint32_t slot) const {
    return virtual_chunks_[slots_[slot].virtual_chunk];
  }
  [[nodiscard]] std::uint32_t units(std::uint32_t sample) const {
    return units_.empty() ? 1 : units_[sample];
  }
  [[nodiscard]] std::uint32_t largest_sample() const { return largest_sample_; }  // units

  // Classes of a chunk, each a slot of several positions; 0: each position is a slot.
  [[nodiscard]] std::uint32_t classes() const { return classes_; }

 private:
  explicit RedoxLayout(const RedoxOrderOptions& options) : blocks_(options.blocks) {}
  // Errors: InvalidArgument  homes that are not one node for each block
  Status Divide(const RedoxOrderOptions& options);
  void Deal(const RedoxOrderOptions& options, std::uint32_t home,
            std::span<const std::uint32_t> chunks);
  void Remap(std::uint64_t seed, std::uint64_t epoch, std::uint32_t nodes);
  void MakeSlots(std::uint32_t slot_classes);

  std::shared_ptr<const BlockMap> blocks_;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t place_count_ = 0;
  std::uint32_t classes_ = 0;
  std::uint64_t full_count_ = 0;
  std::uint64_t word_count_ = 0;
  std::uint64_t share_count_ = 0;
  std::uint32_t largest_sample_ = 1;
  std::vector<Virtual> virtual_chunks_;
  std::vector<std::uint32_t> members_;  // chunks, by virtual chunk
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> slot_of_;  // of each sample
  std::vector<std::uint32_t> units_;    // of each sample; empty: all 1
};

}  // namespace headrace
