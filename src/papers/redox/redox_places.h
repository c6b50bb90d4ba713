#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "papers/redox/redox_layout.h"

namespace headrace {

// A sample in memory, and the read that fetched it.
struct RedoxResident {
  std::uint32_t sample = 0;
  std::uint32_t read = 0;  // of the epoch, ascending in the order of issue

  friend bool operator==(const RedoxResident&, const RedoxResident&) = default;
};

// A sample in memory, and the node that holds it.
struct RedoxHeld {
  std::uint32_t sample = 0;
  std::uint32_t read = 0;  // of the epoch
  std::uint32_t home = 0;  // the node that read it
  std::uint32_t node = 0;  // another one if it was sent along
};

// The samples that are at the homes of their slots, under the `redox` order.
//
// Memory: 8 bytes for each place, 4 for each slot.
// Thread safety: none.
class RedoxPlaces {
 public:
  explicit RedoxPlaces(std::shared_ptr<const RedoxLayout> layout)
      : layout_(std::move(layout)),
        full_(layout_->full_count(), 0),
        held_(layout_->slots().size()),
        places_(layout_->place_count()) {}

  // How many samples each slot has.
  [[nodiscard]] std::span<const std::uint32_t> held() const { return held_; }
  [[nodiscard]] std::uint32_t Free(std::uint32_t slot) const {
    return layout_->slots()[slot].places - held_[slot];
  }
  // The samples of a slot, in order of arrival until a Take().
  [[nodiscard]] std::span<const RedoxResident> Of(std::uint32_t slot) const {
    return std::span(places_).subspan(FirstPlace(slot), held_[slot]);
  }
  // A bit for each slot of a virtual chunk, set if its place is taken. Only without classes.
  [[nodiscard]] std::span<const std::uint64_t> full(const RedoxLayout::Virtual& of) const {
    return std::span(full_).subspan(of.first_full, of.words());
  }

  // Prefetch for a Take() of a slot: first the one, then the other.
  [[gnu::always_inline]] void ExpectSlot(std::uint32_t slot) const {
    __builtin_prefetch(&held_[slot]);
  }
  [[gnu::always_inline]] void Expect(std::uint32_t slot) const {
    __builtin_prefetch(&places_[FirstPlace(slot)]);
    __builtin_prefetch(&layout_->virtual_of(slot));
  }

  void Clear() {
    std::ranges::fill(full_, 0U);
    std::ranges::fill(held_, 0U);
  }
  // The slot, of this virtual chunk, must have a free place.
  void Put(const RedoxLayout::Virtual& of, std::uint32_t slot, RedoxResident resident) {
    places_[FirstPlace(slot) + held_[slot]++] = resident;
    if (layout_->classes() == 0) FullWord(of, slot) |= Bit(of, slot);
  }
  // Removes a sample; the last one takes its place.
  RedoxResident Take(std::uint32_t slot, std::uint32_t index) {
    RedoxResident* const first = &places_[FirstPlace(slot)];
    const RedoxResident taken = first[index];
    first[index] = first[--held_[slot]];
    if (layout_->classes() == 0) {
      const RedoxLayout::Virtual& of = layout_->virtual_of(slot);
      FullWord(of, slot) &= ~Bit(of, slot);
    }
    return taken;
  }

 private:
  // Without classes each slot has one place, which has its number.
  [[nodiscard]] std::uint32_t FirstPlace(std::uint32_t slot) const {
    return layout_->classes() == 0 ? slot : layout_->slots()[slot].first_place;
  }
  [[nodiscard]] static std::uint64_t Bit(const RedoxLayout::Virtual& of, std::uint32_t slot) {
    return std::uint64_t{1} << ((slot - of.first_slot) % 64);
  }
  [[nodiscard]] std::uint64_t& FullWord(const RedoxLayout::Virtual& of, std::uint32_t slot) {
    return full_[of.first_full + (slot - of.first_slot) / 64];
  }

  const std::shared_ptr<const RedoxLayout> layout_;
  std::vector<std::uint64_t> full_;  // see full()
  std::vector<std::uint32_t> held_;
  std::vector<RedoxResident> places_;
};

}  // namespace headrace
