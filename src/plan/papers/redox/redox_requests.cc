#include "plan/papers/redox/redox_requests.h"

#include <utility>

namespace headrace {

RedoxRequests::RedoxRequests(const RedoxOrderOptions& options,
                             std::shared_ptr<const RedoxLayout> layout, std::vector<bool> repeats)
    : job_(options.job),
      nodes_(options.nodes),
      trace_(options.trace),
      layout_(std::move(layout)),
      repeats_(std::move(repeats)) {}

void RedoxRequests::Begin(std::uint64_t epoch) {
  if (trace_ != nullptr || !job_.shuffle) return;
  if (job_.sample_count < job_.bijection_from) {
    const std::span<const std::uint32_t> slots = layout_->slots_of_samples();
    shuffled_.assign(slots.begin(), slots.end());
    Shuffle(shuffled_, Prng(job_.seed, epoch, RandomStream::kOrder));
  } else {
    bijection_.emplace(job_.sample_count, job_.seed, epoch, RandomStream::kOrder,
                       job_.bijection_from);
  }
}

std::uint32_t RedoxRequests::SampleAt(std::uint64_t position) const {
  if (trace_ != nullptr) return static_cast<std::uint32_t>(Raw((*trace_)[position]));
  return static_cast<std::uint32_t>(bijection_.has_value() ? bijection_->At(position) : position);
}

std::span<const std::uint32_t> RedoxRequests::Slots(std::uint64_t begin, std::uint64_t end) {
  if (!shuffled_.empty()) return std::span(shuffled_).subspan(begin, end - begin);
  looked_up_.resize(end - begin);
  for (std::uint64_t g = begin; g < end; ++g) looked_up_[g - begin] = SampleAt(g);
  // All together, so that their cache misses overlap.
  for (std::uint32_t& each : looked_up_) each = layout_->slots_of_samples()[each];
  return looked_up_;
}

RedoxRanges::RedoxRanges(const RedoxLayout& layout) {
  // Range r begins with the first virtual chunk from slot r * kSlots on.
  for (const RedoxLayout::Virtual& each : layout.virtual_chunks()) {
    while (each.first_slot >= first_slots_.size() * kSlots) {
      first_slots_.push_back(each.first_slot);
    }
  }
  constexpr std::uint32_t kNever = 0xffff'ffff;  // In the middle of the last virtual chunk.
  first_slots_.resize(layout.slots().size() / kSlots + 1, kNever);
}

void RedoxRanges::Sort(std::vector<RedoxRequest>& requests) {
  std::vector<std::uint32_t> ends(first_slots_.size() + 1, 0);
  for (const RedoxRequest& each : requests) ++ends[RangeOf(each.slot) + 1];
  for (std::size_t range = 1; range < ends.size(); ++range) ends[range] += ends[range - 1];
  sorted_.resize(requests.size());
  for (const RedoxRequest& each : requests) sorted_[ends[RangeOf(each.slot)]++] = each;
  std::swap(requests, sorted_);
}

}  // namespace headrace
