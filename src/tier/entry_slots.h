#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headrace/ids.h"

namespace headrace {

// The high bits of the product are well mixed, whatever the samples have in common: samples of one
// block are often looked up together. The constant is 2^64 over the golden ratio.
constexpr std::uint64_t SpreadSample(SampleId sample) {
  return Raw(sample) * 0x9e37'79b9'7f4a'7c15U;
}

// A hash table of pointers to entries, by sample. Linear probing: a lookup usually costs one cache
// miss; an erase moves the entries behind it up, so that no tombstones remain.
//
// Thread safety: none.
// Ownership: does not own the entries.
template <typename Entry>
class EntrySlots {
 public:
  // `skipped_bits` of the hash are the same for all samples of this table.
  explicit EntrySlots(unsigned skipped_bits) : skipped_bits_(skipped_bits), slots_(kSlotsMin) {}

  [[nodiscard]] std::size_t size() const { return size_; }

  // Null if there is none.
  [[nodiscard]] Entry* Find(SampleId sample) const { return slots_[PlaceOf(sample)].entry; }

  // Returns false, and does nothing, if the sample has an entry.
  bool Insert(Entry* entry) {
    if (slots_[PlaceOf(entry->sample)].entry != nullptr) return false;
    if (2 * (size_ + 1) > slots_.size()) Grow();
    slots_[PlaceOf(entry->sample)] = {entry->sample, entry};
    ++size_;
    return true;
  }

  // The entry must exist.
  void Erase(SampleId sample) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t gap = PlaceOf(sample);
    for (std::size_t next = (gap + 1) & mask; slots_[next].entry != nullptr;
         next = (next + 1) & mask) {
      // An entry that is no farther from its own slot than from the gap must not move there.
      const std::size_t home = HomeOf(slots_[next].sample);
      if (((next - home) & mask) < ((next - gap) & mask)) continue;
      slots_[gap] = slots_[next];
      gap = next;
    }
    slots_[gap] = {};
    --size_;
  }

  // Calls visit(Entry&) for each, in no order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.entry != nullptr) visit(*slot.entry);
    }
  }

 private:
  static constexpr std::size_t kSlotsMin = 16;  // always a power of two, half of them free

  struct Slot {
    SampleId sample{};
    Entry* entry = nullptr;
  };

  [[nodiscard]] std::size_t HomeOf(SampleId sample) const {
    return (SpreadSample(sample) << skipped_bits_) >> shift_;
  }
  // The slot of its entry or, if it has none, the slot where it would go.
  [[nodiscard]] std::size_t PlaceOf(SampleId sample) const {
    std::size_t place = HomeOf(sample);
    while (slots_[place].entry != nullptr && slots_[place].sample != sample) {
      place = (place + 1) & (slots_.size() - 1);
    }
    return place;
  }
  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old) {
      if (slot.entry != nullptr) slots_[PlaceOf(slot.sample)] = slot;
    }
  }

  const unsigned skipped_bits_;
  unsigned shift_ = 64 - 4;  // leaves the number of a slot
  std::size_t size_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace headrace
