#include "papers/redox/redox_requests.h"

#include <utility>

#include "base/prng.h"

namespace headrace {
namespace {

// Above those of virtual chunks and of RedoxLayout.
constexpr std::uint64_t kFirstArrivalItem = std::uint64_t{1} << 33;

}  // namespace

RedoxRequests::RedoxRequests(const RedoxOrderOptions& options,
                             std::shared_ptr<const RedoxLayout> layout, std::vector<bool> repeats)
    : job_(options.job),
      nodes_(options.nodes),
      trace_(options.trace),
      layout_(std::move(layout)),
      repeats_(std::move(repeats)) {}

void RedoxRequests::Begin(std::uint64_t epoch) {
  epoch_ = epoch;
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

std::span<const std::uint32_t> RedoxRequests::Arrivals(std::uint64_t step, std::uint64_t begin,
                                                       std::uint64_t count) {
  // First the node of each, then that node's next position.
  next_of_node_.assign(nodes_, 0);
  nodes_in_turn_.resize(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    nodes_in_turn_[i] = NodeOf(begin + i);
    if (i < nodes_) next_of_node_[nodes_in_turn_[i]] = static_cast<std::uint32_t>(i);
  }
  Shuffle(nodes_in_turn_, Prng(job_.seed, epoch_, RandomStream::kChunk, kFirstArrivalItem + step));
  for (std::uint32_t& each : nodes_in_turn_) {
    each = std::exchange(next_of_node_[each], next_of_node_[each] + nodes_);
  }
  return nodes_in_turn_;
}

std::uint32_t RedoxRequests::SampleAt(std::uint64_t position) const {
  if (trace_ != nullptr) return static_cast<std::uint32_t>(Raw((*trace_)[position]));
  return static_cast<std::uint32_t>(bijection_.has_value() ? bijection_->At(position) : position);
}

std::vector<std::uint32_t> RedoxRequests::Samples(std::uint64_t count) const {
  std::optional<Permutation> table;  // Of which shuffled_ has the slots.
  if (!shuffled_.empty()) {
    table.emplace(job_.sample_count, job_.seed, epoch_, RandomStream::kOrder, job_.bijection_from);
  }
  std::vector<std::uint32_t> samples;
  for (std::uint64_t g = 0; g < count; ++g) {
    samples.push_back(table.has_value() ? static_cast<std::uint32_t>(table->At(g)) : SampleAt(g));
  }
  return samples;
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
