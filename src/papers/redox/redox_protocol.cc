#include "papers/redox/redox_protocol.h"

#include <algorithm>
#include <utility>

namespace headrace {

RedoxProtocol::RedoxProtocol(const RedoxOrderOptions& options,
                             std::shared_ptr<const RedoxLayout> layout,
                             const std::vector<bool>& members, const Counts& counts)
    : layout_(std::move(layout)),
      nodes_(options.nodes),
      memory_units_(options.memory_units),
      remote_units_(options.remote_units),
      places_(layout_),
      chooser_(options, layout_, members, places_),
      node_units_(options.nodes),
      counts_(counts) {
  if (options.nodes > 1 && options.prefetch > 1) {
    window_.emplace(layout_, options.nodes, options.prefetch);
  }
}

void RedoxProtocol::Begin(std::uint64_t epoch) {
  chooser_.Begin(epoch);
  places_.Clear();
  std::ranges::fill(node_units_, 0U);
  if (window_.has_value()) window_->Clear();
  units_ = 0;
  next_read_ = 0;
  reads_.Clear();
}

RedoxAnswer RedoxProtocol::Serve(std::uint32_t node, std::uint32_t slot) {
  ++counts_.requests;
  sent_along_.clear();
  const bool remote = layout_->slots()[slot].home != node;
  RedoxResident answer;
  if (remote) {
    ++counts_.remote_reads;
    if (window_.has_value()) {
      window_->Request(node, slot);
      if (const auto held = window_->Held(node, slot); !held.empty()) {
        const auto count = static_cast<std::uint32_t>(held.size());
        answer = window_->Take(node, slot, chooser_.Draw(slot, count));
        node_units_[node] -= layout_->units(answer.sample);
        units_ -= layout_->units(answer.sample);
        return {.resident = answer, .was_held = true, .along = {}};
      }
    }
  }
  if (places_.held()[slot] == 0) Refill(slot);
  answer = places_.Take(slot, chooser_.Draw(slot, places_.held()[slot]));
  units_ -= layout_->units(answer.sample);
  if (remote) {
    ++counts_.remote_requests;
    counts_.remote_units += layout_->units(answer.sample);
    if (window_.has_value()) SendAlong(node, slot);
  }
  return {.resident = answer, .was_held = false, .along = sent_along_};
}

void RedoxProtocol::SendAlong(std::uint32_t node, std::uint32_t slot) {
  window_->Shift(node, slot, places_);
  while (const auto due = window_->FirstDue(node, slot, places_)) {
    const std::uint32_t next = due->slot;
    const std::uint32_t index = chooser_.Draw(next, places_.held()[next]);
    const std::uint32_t units = layout_->units(places_.Of(next)[index].sample);
    if (remote_units_ != 0 && node_units_[node] + units > remote_units_) return;
    sent_along_.push_back(places_.Take(next, index));
    window_->Put(node, next, sent_along_.back());
    node_units_[node] += units;
    ++counts_.prefetched;
    counts_.remote_units += units;
    counts_.peak_remote_units = std::max(counts_.peak_remote_units, node_units_[node]);
  }
}

void RedoxProtocol::Refill(std::uint32_t slot) {
  const RedoxLayout::Virtual& of = layout_->virtual_of(slot);
  const std::uint32_t member = chooser_.ChooseChunk(slot);
  const std::uint32_t chunk = layout_->chunk(of, member);
  const BlockMap::Block block = layout_->blocks().block(chunk);
  const auto first = static_cast<std::uint32_t>(Raw(block.first));
  // The request's own sample always has room: all others leave room for the largest sample.
  const std::uint64_t limit =
      memory_units_ - std::min<std::uint64_t>(memory_units_, layout_->largest_sample());
  const std::span<const std::uint32_t> chosen = chooser_.ChoosePositions(slot, member);
  for (const std::uint32_t position : chosen) {
    const std::uint32_t home = of.SlotOf(position);
    places_.ExpectSlot(home);
    if (window_.has_value()) window_->Expect(home);
  }
  const std::size_t kept_before = reads_.kept.size();
  for (const std::uint32_t position : chosen) {
    const std::uint32_t units = layout_->units(first + position);
    if (memory_units_ != 0 && reads_.kept.size() > kept_before && units_ + units > limit) continue;
    chooser_.Keep(of, member, position);
    const std::uint32_t home = of.SlotOf(position);
    places_.Put(of, home, {.sample = first + position, .read = next_read_});
    if (window_.has_value()) window_->Filled(home);
    reads_.kept.push_back(position);
    units_ += units;
    counts_.kept_units += units;
  }
  reads_.all.push_back({.chunk = chunk, .kept_end = reads_.kept.size()});
  ++counts_.misses;
  counts_.read_samples += block.count;
  for (std::uint32_t o = 0; o < block.count; ++o) counts_.read_units += layout_->units(first + o);
  counts_.filled += reads_.kept.size() - kept_before;
  counts_.peak_units = std::max(counts_.peak_units, units_);
  ++next_read_;
}

std::vector<RedoxHeld> RedoxProtocol::Residents() const {
  std::vector<RedoxHeld> all;
  for (std::uint32_t slot = 0; slot < places_.held().size(); ++slot) {
    const std::uint32_t home = layout_->slots()[slot].home;
    const auto append = [&](std::span<const RedoxResident> held, std::uint32_t node) {
      for (const RedoxResident& each : held) {
        all.push_back({.sample = each.sample, .read = each.read, .home = home, .node = node});
      }
    };
    append(places_.Of(slot), home);
    if (!window_.has_value()) continue;
    for (std::uint32_t node = 0; node < nodes_; ++node) append(window_->Held(node, slot), node);
  }
  std::ranges::sort(all, {},
                    [](const RedoxHeld& each) { return std::pair(each.read, each.sample); });
  return all;
}

}  // namespace headrace
