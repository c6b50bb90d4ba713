#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plan/papers/redox/redox_chooser.h"
#include "plan/papers/redox/redox_layout.h"
#include "plan/papers/redox/redox_order.h"
#include "plan/papers/redox/redox_places.h"
#include "plan/papers/redox/redox_window.h"

namespace headrace {

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
  RedoxProtocol(const RedoxProtocol&) = delete;
  RedoxProtocol& operator=(const RedoxProtocol&) = delete;

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
  void Clear(std::uint64_t epoch);
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
  std::uint32_t reads_issued_ = 0;
  std::vector<Read> reads_;
  Counts counts_;
};

}  // namespace headrace
