#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "plan/papers/redox/redox_layout.h"
#include "plan/papers/redox/redox_window.h"

namespace headrace {

// The slot protocol of the papers, for all nodes at once. It takes a request and returns the sample
// that answers it. A request is for a slot; the protocol does not use the requested sample.
//
// Events of one request of node R for slot s, whose home is H, in order:
//  1. R is not H and holds samples of s: one of them answers. No message.
//  2. H has no sample in s: it chooses a chunk that still has one for s, reads it, and keeps the
//     samples that find a free place. Nothing is evicted.
// 3. A sample of s at H answers. 4. R is not H: H also sends the samples that it has for R's next
// requests to H, while R has places
//     and memory for them.
//
// Thread safety: none.
class RedoxProtocol {
 public:
  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t misses = 0;  // reads
    std::uint64_t read_samples = 0;
    std::uint64_t filled = 0;             // samples of these that were kept
    std::uint64_t remote_reads = 0;       // requests to another node's slots
    std::uint64_t remote_requests = 0;    // of these, requests that took a message
    std::uint64_t prefetched = 0;         // samples sent along
    std::uint64_t remote_units = 0;       // sent from node to node
    std::uint64_t peak_units = 0;         // largest number resident at once
    std::uint64_t peak_remote_units = 0;  // of these, sent along, on one node
  };
  // A chunk that was read, and the positions kept.
  struct Read {
    std::uint32_t chunk = 0;
    std::vector<std::uint32_t> kept;  // ascending
  };

  // Keeps only samples in `members`; empty: every sample.
  RedoxProtocol(const RedoxOrderOptions& options, std::shared_ptr<const RedoxLayout> layout,
                const std::vector<bool>& members);

  // Begins an epoch: `trace(g)` is the slot that position g requests, or std::nullopt if it
  // requests none; position g belongs to node g mod nodes. Called for g in [0, count), in order.
  template <typename Trace>
  void Begin(std::uint64_t epoch, std::uint64_t count, Trace trace) {
    Clear(epoch);
    if (!window_.has_value()) return;
    for (std::uint64_t g = 0; g < count; ++g) {
      const std::optional<std::uint32_t> slot = trace(g);
      const auto node = static_cast<std::uint32_t>(g % nodes_);
      if (slot.has_value() && layout_->slots()[*slot].home != node) window_->Add(node, *slot);
    }
    window_->Seal();
  }

  // Answers the next request. `slot` must have a sample left: the epoch requests it at most once
  // for each of its members.
  RedoxResident Serve(std::uint32_t node, std::uint32_t slot);

  // Takes the reads since the last call; the first is number reads_issued() - size.
  std::vector<Read> TakeReads() { return std::exchange(reads_, {}); }
  [[nodiscard]] std::uint32_t reads_issued() const { return reads_issued_; }

  // The samples in memory, ordered by read, then sample.
  [[nodiscard]] std::vector<RedoxResident> Residents();

  [[nodiscard]] const Counts& counts() const { return counts_; }
  void ResetCounts() { counts_ = {.peak_units = units_}; }

 private:
  // A chunk that may refill a slot: its number within the virtual chunk.
  using Member = std::uint32_t;

  void Clear(std::uint64_t epoch);
  void Refill(std::uint32_t slot);
  Member ChooseChunk(const RedoxLayout::Virtual& of, std::uint32_t slot);
  [[nodiscard]] bool CanFill(const RedoxLayout::Virtual& of, Member member, std::uint32_t x) const;
  [[nodiscard]] std::uint64_t Fillable(const RedoxLayout::Virtual& of, Member member) const;
  // Chooses the positions of the chunk for which there is a place, first those for slot x of the
  // virtual chunk.
  void ChoosePositions(const RedoxLayout::Virtual& of, Member member, std::uint32_t x);
  void ChooseOfClass(const RedoxLayout::Virtual& of, Member member, std::uint32_t x);
  void Keep(const RedoxLayout::Virtual& of, Member member, std::uint32_t position);
  RedoxResident TakeAtHome(std::uint32_t slot, std::uint32_t index);
  void SendAlong(std::uint32_t node, std::uint32_t slot);
  std::uint32_t Draw(std::uint32_t slot, std::uint32_t count);

  [[nodiscard]] std::span<std::uint64_t> taken(const RedoxLayout::Virtual& of, Member member) {
    return std::span(taken_).subspan(of.first_word + std::uint64_t{member} * of.words(),
                                     of.words());
  }
  [[nodiscard]] std::span<const std::uint64_t> taken(const RedoxLayout::Virtual& of,
                                                     Member member) const {
    return std::span(taken_).subspan(of.first_word + std::uint64_t{member} * of.words(),
                                     of.words());
  }
  [[nodiscard]] std::span<const std::uint32_t> shares(const RedoxLayout::Virtual& of,
                                                      Member member) const {
    return std::span(shares_).subspan(of.first_share + std::uint64_t{member} * of.slot_count,
                                      of.slot_count);
  }

  const std::shared_ptr<const RedoxLayout> layout_;
  const std::uint32_t nodes_;
  const RedoxOrderOptions::Refill refill_;
  const RedoxOrderOptions::Ties ties_;
  const std::uint64_t seed_;
  const std::uint64_t memory_units_;
  const std::uint64_t remote_units_;

  // At the beginning of an epoch: a bit for each position of each chunk, set if the position must
  // not be kept. If slots are classes, also the number of such positions in each slot of each
  // chunk.
  std::vector<std::uint64_t> taken_at_first_;
  std::vector<std::uint32_t> shares_at_first_;
  // The same now: a sample that was kept is not kept again.
  std::vector<std::uint64_t> taken_;
  std::vector<std::uint32_t> shares_;

  std::vector<std::uint64_t> full_;  // a bit for each slot of a virtual chunk, unless classes
  std::vector<std::uint32_t> held_;  // of each slot, at its home
  std::vector<RedoxResident> places_;
  std::vector<Prng> draws_;  // of each virtual chunk
  std::optional<RedoxWindow> window_;
  std::vector<std::uint64_t> node_units_;  // sent along and not yet requested

  std::uint64_t units_ = 0;  // resident
  std::uint32_t reads_issued_ = 0;
  std::vector<Read> reads_;
  Counts counts_;

  std::vector<Member> best_;               // of ChooseChunk()
  std::vector<std::uint32_t> chosen_;      // of ChoosePositions()
  std::vector<std::uint32_t> candidates_;  // of ChooseOfClass()
};

}  // namespace headrace
