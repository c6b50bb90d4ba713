#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/prng.h"
#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/redox_places.h"

namespace headrace {

// Chooses what refills a slot under the `redox` order: a chunk of its virtual chunk, and the
// positions of it to keep. Knows which positions were kept before in the epoch. Makes all random
// choices of the protocol, from one generator for each virtual chunk.
//
// Memory: 2 bits for each position of each chunk; with classes 8 bytes for each slot of each chunk.
// Thread safety: none.
// Ownership: `places` must outlive it.
class RedoxChooser {
 public:
  // Chooses only samples in `members`; empty: every sample.
  RedoxChooser(const RedoxOrderOptions& options, std::shared_ptr<const RedoxLayout> layout,
               const std::vector<bool>& members, const RedoxPlaces& places);

  void Begin(std::uint64_t epoch);

  // A random number below `count`, for a choice among samples of `slot`.
  std::uint32_t Draw(std::uint32_t slot, std::uint32_t count) {
    if (count == 1) return 0;
    return static_cast<std::uint32_t>(draws_[layout_->slots()[slot].virtual_chunk].Below(count));
  }

  // Prefetches for a ChooseChunk() of the slot.
  [[gnu::always_inline]] void Expect(std::uint32_t slot) const {
    const std::uint32_t of = layout_->slots()[slot].virtual_chunk;
    __builtin_prefetch(&draws_[of]);
    __builtin_prefetch(&taken_[layout_->virtual_chunks()[of].first_word]);
  }

  // The chunk that refills `slot`, by its number within the virtual chunk. One must have a sample
  // for the slot.
  std::uint32_t ChooseChunk(std::uint32_t slot);
  // The positions of the chunk for which there is a place, first those for `slot`. They are valid
  // until the next call.
  std::span<const std::uint32_t> ChoosePositions(std::uint32_t slot, std::uint32_t member);
  // A position is kept: it is not chosen again in this epoch.
  void Keep(const RedoxLayout::Virtual& of, std::uint32_t member, std::uint32_t position) {
    taken_[of.first_word + std::uint64_t{member} * of.words() + position / 64] |=
        std::uint64_t{1} << (position % 64);
    if (layout_->classes() == 0) return;
    --shares_[of.first_share + std::uint64_t{member} * of.slot_count + position % of.slot_count];
  }
  // Whether a position was kept in this epoch, or must not be.
  [[nodiscard]] bool WasKept(const RedoxLayout::Virtual& of, std::uint32_t member,
                             std::uint32_t position) const {
    return (taken(of, member)[position / 64] >> (position % 64) & 1) != 0;
  }

 private:
  using Virtual = RedoxLayout::Virtual;

  [[nodiscard]] bool CanFill(const Virtual& of, std::uint32_t member, std::uint32_t x) const;
  [[nodiscard]] std::uint64_t Fillable(const Virtual& of, std::uint32_t member) const;
  // Slot x of the virtual chunk.
  void ChooseOfClass(const Virtual& of, std::uint32_t member, std::uint32_t x);

  [[nodiscard]] std::span<const std::uint64_t> taken(const Virtual& of,
                                                     std::uint32_t member) const {
    return std::span(taken_).subspan(of.first_word + std::uint64_t{member} * of.words(),
                                     of.words());
  }
  [[nodiscard]] std::span<const std::uint32_t> shares(const Virtual& of,
                                                      std::uint32_t member) const {
    return std::span(shares_).subspan(of.first_share + std::uint64_t{member} * of.slot_count,
                                      of.slot_count);
  }

  const std::shared_ptr<const RedoxLayout> layout_;
  const RedoxPlaces& places_;
  const RedoxOrderOptions::Refill refill_;
  const RedoxOrderOptions::Ties ties_;
  const std::uint64_t seed_;

  // At the beginning of an epoch: a bit for each position of each chunk, set if the position must
  // not be kept. If slots are classes, also the number of other positions in each slot of each
  // chunk.
  std::vector<std::uint64_t> taken_at_first_;
  std::vector<std::uint32_t> shares_at_first_;
  // The same now: a sample that was kept is not kept again.
  std::vector<std::uint64_t> taken_;
  std::vector<std::uint32_t> shares_;
  std::vector<Prng> draws_;  // of each virtual chunk

  std::vector<std::uint32_t> best_;        // of ChooseChunk()
  std::vector<std::uint32_t> chosen_;      // of ChoosePositions()
  std::vector<std::uint32_t> candidates_;  // of ChooseOfClass()
};

}  // namespace headrace
