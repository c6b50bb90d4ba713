#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"
#include "plan/permutation.h"

namespace headrace {

// The requests of an epoch of the `redox` order: which node asks at a position, and for which slot.
//
// Memory: 4 bytes a sample below options.job.bijection_from samples, and what is looked up.
// Thread safety: none.
class RedoxRequests {
 public:
  // `repeats`: positions of options.trace that name a sample again; empty: there are none.
  RedoxRequests(const RedoxOrderOptions& options, std::shared_ptr<const RedoxLayout> layout,
                std::vector<bool> repeats);

  void Begin(std::uint64_t epoch);

  [[nodiscard]] std::uint32_t NodeOf(std::uint64_t position) const {
    return nodes_ == 1 ? 0 : static_cast<std::uint32_t>(position % nodes_);
  }
  // Of a trace: whether the position repeats the sample of an earlier one, and that sample.
  [[nodiscard]] bool IsRepeat(std::uint64_t position) const {
    return !repeats_.empty() && repeats_[position];
  }
  [[nodiscard]] SampleId Repeated(std::uint64_t position) const { return (*trace_)[position]; }

  // The positions of a step in the order in which their requests come, as offsets from its first,
  // `begin`; `count` of them. With options.arrival; otherwise they come in order. Valid until the
  // next call.
  std::span<const std::uint32_t> Arrivals(std::uint64_t step, std::uint64_t begin,
                                          std::uint64_t count);

  // The samples that positions 0, 1, ..., `count` - 1 of the epoch ask for. To look at.
  [[nodiscard]] std::vector<std::uint32_t> Samples(std::uint64_t count) const;

  // The slots that positions [begin, end) of the epoch ask for; valid until the next call.
  std::span<const std::uint32_t> Slots(std::uint64_t begin, std::uint64_t end);

 private:
  [[nodiscard]] std::uint32_t SampleAt(std::uint64_t position) const;

  const OrderOptions job_;
  const std::uint32_t nodes_;
  const std::shared_ptr<const std::vector<SampleId>> trace_;
  const std::shared_ptr<const RedoxLayout> layout_;
  const std::vector<bool> repeats_;
  // Of the epoch, without a trace: the slots of all samples, shuffled as these, or the bijection.
  std::vector<std::uint32_t> shuffled_;
  std::optional<Permutation> bijection_;
  std::vector<std::uint32_t> looked_up_;
  std::uint64_t epoch_ = 0;
  std::vector<std::uint32_t> nodes_in_turn_;
  std::vector<std::uint32_t> next_of_node_;
};

// A request, numbered in the order in which they come.
struct RedoxRequest {
  std::uint32_t number = 0;
  std::uint32_t slot = 0;
  std::uint32_t node = 0;
};

// Sorts requests by ranges of slots, each of whole virtual chunks, and otherwise leaves them in
// sequence: what a range needs stays in the processor's caches meanwhile.
//
// Thread safety: none.
class RedoxRanges {
 public:
  static constexpr std::uint32_t kSlots = 4096;  // of a range, unless a virtual chunk has more

  explicit RedoxRanges(const RedoxLayout& layout);

  void Sort(std::vector<RedoxRequest>& requests);

 private:
  [[nodiscard]] std::size_t RangeOf(std::uint32_t slot) const {
    std::size_t range = slot / kSlots;
    while (slot < first_slots_[range]) --range;
    return range;
  }

  std::vector<std::uint32_t> first_slots_;
  std::vector<RedoxRequest> sorted_;
};

}  // namespace headrace
