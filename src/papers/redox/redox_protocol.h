#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "papers/redox/redox_chooser.h"
#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/redox_places.h"
#include "papers/redox/redox_window.h"

namespace headrace {

// The answer to a request.
struct RedoxAnswer {
  RedoxResident resident;
  bool was_held = false;                 // it had been sent along before: no message goes
  std::span<const RedoxResident> along;  // sent with it; valid until the next answer
};

// The slot protocol of the papers, for all nodes at once. It takes a request and returns the sample
// that answers it. A request is for a slot; the protocol does not use the requested sample.
//
// Events of one request of node R for slot s, whose home is H, in order:
//  1. R is not H and holds samples of s: one of them answers. No message.
//  2. H has no sample in s: it chooses a chunk that still has one for s, reads it, and keeps the
//     samples that find a free place. Nothing is evicted.
//  3. A sample of s at H answers.
//  4. R is not H: H also sends the samples that it has for R's next requests to H, while R has
//     places and memory for them.
//
// RedoxPlaces has the samples at their homes, RedoxWindow those at requesters; RedoxChooser chooses
// what to read and keep.
// Thread safety: none.
class RedoxProtocol {
 public:
  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t misses = 0;  // reads
    std::uint64_t read_samples = 0;
    std::uint64_t filled = 0;             // samples of these that were kept
    std::uint64_t read_units = 0;         // of all samples of the chunks that were read
    std::uint64_t kept_units = 0;         // of those that were kept
    std::uint64_t remote_reads = 0;       // requests to another node's slots
    std::uint64_t remote_requests = 0;    // of these, requests that took a message
    std::uint64_t prefetched = 0;         // samples sent along
    std::uint64_t remote_units = 0;       // sent from node to node
    std::uint64_t peak_units = 0;         // largest number resident at once
    std::uint64_t peak_remote_units = 0;  // of these, sent along, on one node
  };
  // A chunk that was read.
  struct Read {
    std::uint32_t chunk = 0;
    std::size_t kept_end = 0;  // end of its positions in Reads::kept
  };
  struct Reads {
    std::vector<Read> all;
    std::vector<std::uint32_t> kept;  // positions of the first read, in any order; of the second...

    void Clear() {
      all.clear();
      kept.clear();
    }
  };

  // Keeps only samples in `members`; empty: every sample. Counts on from `counts`.
  RedoxProtocol(const RedoxOrderOptions& options, std::shared_ptr<const RedoxLayout> layout,
                const std::vector<bool>& members, const Counts& counts);
  RedoxProtocol(const RedoxProtocol&) = delete;

  // Begins an epoch. If `looks_ahead()`, Announce() all of its requests next, in order, then call
  // EndAnnouncements().
  void Begin(std::uint64_t epoch);
  [[nodiscard]] bool looks_ahead() const { return window_.has_value(); }
  void Announce(std::uint32_t node, std::uint32_t slot) {
    if (layout_->slots()[slot].home != node) window_->Add(node, slot);
  }
  void EndAnnouncements() { window_->Seal(); }

  // Answers the next request. `slot` must have a sample left: the epoch requests it at most once
  // for each of its members.
  RedoxAnswer Serve(std::uint32_t node, std::uint32_t slot);

  // Prefetches for a Serve() that follows soon: first the one, some requests later the other.
  [[gnu::always_inline]] void ExpectSlot(std::uint32_t slot) const {
    __builtin_prefetch(&layout_->slots()[slot]);
    places_.ExpectSlot(slot);
    if (window_.has_value()) window_->Expect(slot);
  }
  [[gnu::always_inline]] void Expect(std::uint32_t node, std::uint32_t slot) const {
    if (window_.has_value() && window_->ExpectHeld(node, slot)) return;
    places_.Expect(slot);
    if (places_.held()[slot] == 0) chooser_.Expect(slot);
  }

  // Whether what happens to a virtual chunk depends on the requests for its own slots only. Then
  // requests for different ones may be served in any order.
  [[nodiscard]] bool virtual_chunks_are_independent() const {
    return memory_units_ == 0 && !window_.has_value();
  }

  // The number of the next read in its epoch. Each read is numbered one above the one before.
  void NumberReadsFrom(std::uint32_t number) { next_read_ = number; }
  // The reads since the last ForgetReads().
  [[nodiscard]] const Reads& reads() const { return reads_; }
  void ForgetReads() { reads_.Clear(); }

  // The samples in memory, ordered by read, then sample.
  [[nodiscard]] std::vector<RedoxHeld> Residents() const;

  [[nodiscard]] const Counts& counts() const { return counts_; }
  void ResetCounts() { counts_ = {.peak_units = units_}; }

 private:
  friend struct RedoxDump;  // Looks at everything.

  void Refill(std::uint32_t slot);
  void SendAlong(std::uint32_t node, std::uint32_t slot);

  const std::shared_ptr<const RedoxLayout> layout_;
  const std::uint32_t nodes_;
  const std::uint64_t memory_units_;
  const std::uint64_t remote_units_;

  RedoxPlaces places_;
  RedoxChooser chooser_;
  std::optional<RedoxWindow> window_;
  std::vector<std::uint64_t> node_units_;  // sent along and not yet requested

  std::uint64_t units_ = 0;  // resident
  std::uint32_t next_read_ = 0;
  std::vector<RedoxResident> sent_along_;
  Reads reads_;
  Counts counts_;
};

}  // namespace headrace
