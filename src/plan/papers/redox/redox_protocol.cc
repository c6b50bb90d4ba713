#include "plan/papers/redox/redox_protocol.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

std::uint64_t Bit(std::uint32_t position) { return std::uint64_t{1} << (position % 64); }

bool Has(std::span<const std::uint64_t> bits, std::uint32_t position) {
  return (bits[position / 64] & Bit(position)) != 0;
}

}  // namespace

RedoxProtocol::RedoxProtocol(const RedoxOrderOptions& options,
                             std::shared_ptr<const RedoxLayout> layout,
                             const std::vector<bool>& members)
    : layout_(std::move(layout)),
      nodes_(options.nodes),
      refill_(options.refill),
      ties_(options.ties),
      seed_(options.job.seed),
      memory_units_(options.memory_units),
      remote_units_(options.remote_units),
      taken_at_first_(layout_->word_count(), kAllBits),
      shares_at_first_(layout_->share_count(), 0),
      full_(layout_->full_count(), 0),
      held_(layout_->slots().size()),
      places_(layout_->place_count()),
      node_units_(options.nodes) {
  for (const RedoxLayout::Virtual& of : layout_->virtual_chunks()) {
    for (Member member = 0; member < of.chunk_count; ++member) {
      const BlockMap::Block block = layout_->blocks().block(of.chunk + member * of.stride);
      const std::uint64_t word = of.first_word + std::uint64_t{member} * of.words();
      for (std::uint32_t o = 0; o < block.count; ++o) {
        if (!members.empty() && !members[Raw(block.first) + o]) continue;
        taken_at_first_[word + o / 64] &= ~Bit(o);
        if (layout_->classes() == 0) continue;
        ++shares_at_first_[of.first_share + std::uint64_t{member} * of.slot_count +
                           o % of.slot_count];
      }
    }
  }
  if (options.nodes > 1 && options.prefetch > 1) {
    window_.emplace(layout_, options.nodes, options.prefetch);
  }
}

void RedoxProtocol::Clear(std::uint64_t epoch) {
  taken_ = taken_at_first_;
  shares_ = shares_at_first_;
  std::ranges::fill(full_, 0U);
  std::ranges::fill(held_, 0U);
  std::ranges::fill(node_units_, 0U);
  draws_.clear();
  for (std::uint64_t v = 0; v < layout_->virtual_chunks().size(); ++v) {
    draws_.emplace_back(seed_, epoch, RandomStream::kChunk, v);
  }
  if (window_.has_value()) window_->Clear();
  units_ = 0;
  reads_issued_ = 0;
  reads_.clear();
}

std::uint32_t RedoxProtocol::Draw(std::uint32_t slot, std::uint32_t count) {
  if (count == 1) return 0;
  return static_cast<std::uint32_t>(draws_[layout_->slots()[slot].virtual_chunk].Below(count));
}

RedoxResident RedoxProtocol::Serve(std::uint32_t node, std::uint32_t slot) {
  ++counts_.requests;
  const bool remote = layout_->slots()[slot].home != node;
  RedoxResident answer;
  if (remote) {
    ++counts_.remote_reads;
    if (window_.has_value()) {
      window_->Request(node, slot);
      if (const auto held = window_->Held(node, slot); !held.empty()) {
        const auto count = static_cast<std::uint32_t>(held.size());
        answer = window_->Take(node, slot, Draw(slot, count));
        node_units_[node] -= layout_->units(answer.sample);
        units_ -= layout_->units(answer.sample);
        return answer;
      }
    }
  }
  if (held_[slot] == 0) Refill(slot);
  answer = TakeAtHome(slot, Draw(slot, held_[slot]));
  units_ -= layout_->units(answer.sample);
  if (remote) {
    ++counts_.remote_requests;
    counts_.remote_units += layout_->units(answer.sample);
    if (window_.has_value()) SendAlong(node, slot);
  }
  return answer;
}

void RedoxProtocol::SendAlong(std::uint32_t node, std::uint32_t slot) {
  const auto due = window_->Due(node, slot, held_);
  for (std::size_t i = 0; i < due.size(); ++i) {
    const std::uint32_t next = due[i].slot;
    const std::uint32_t index = Draw(next, held_[next]);
    const RedoxResident resident = places_[layout_->slots()[next].first_place + index];
    const std::uint32_t units = layout_->units(resident.sample);
    if (remote_units_ != 0 && node_units_[node] + units > remote_units_) {
      for (const RedoxWindow::Candidate& left : due.subspan(i)) window_->Defer(node, left.slot);
      return;
    }
    window_->Put(node, next, TakeAtHome(next, index));
    node_units_[node] += units;
    ++counts_.prefetched;
    counts_.remote_units += units;
    counts_.peak_remote_units = std::max(counts_.peak_remote_units, node_units_[node]);
  }
}

RedoxResident RedoxProtocol::TakeAtHome(std::uint32_t slot, std::uint32_t index) {
  const RedoxLayout::Slot& of = layout_->slots()[slot];
  const RedoxResident taken = places_[of.first_place + index];
  const std::uint32_t left = --held_[slot];
  places_[of.first_place + index] = places_[of.first_place + left];
  if (layout_->classes() == 0) {
    const RedoxLayout::Virtual& home = layout_->virtual_of(slot);
    const std::uint32_t x = slot - home.first_slot;
    full_[home.first_full + x / 64] &= ~Bit(x);
  }
  return taken;
}

bool RedoxProtocol::CanFill(const RedoxLayout::Virtual& of, Member member, std::uint32_t x) const {
  return layout_->classes() == 0 ? !Has(taken(of, member), x) : shares(of, member)[x] != 0;
}

std::uint64_t RedoxProtocol::Fillable(const RedoxLayout::Virtual& of, Member member) const {
  std::uint64_t sum = 0;
  if (layout_->classes() == 0) {
    const std::span<const std::uint64_t> bits = taken(of, member);
    for (std::uint32_t i = 0; i < bits.size(); ++i) {
      sum += static_cast<std::uint64_t>(std::popcount(~(bits[i] | full_[of.first_full + i])));
    }
    return sum;
  }
  const std::span<const std::uint32_t> left = shares(of, member);
  for (std::uint32_t x = 0; x < of.slot_count; ++x) {
    const std::uint32_t slot = of.first_slot + x;
    sum += std::min(left[x], layout_->slots()[slot].places - held_[slot]);
  }
  return sum;
}

RedoxProtocol::Member RedoxProtocol::ChooseChunk(const RedoxLayout::Virtual& of,
                                                 std::uint32_t slot) {
  const bool count_matters = refill_ == RedoxOrderOptions::Refill::kMaxFill;
  best_.clear();
  std::uint64_t most = 0;
  for (Member member = 0; member < of.chunk_count; ++member) {
    if (!CanFill(of, member, slot - of.first_slot)) continue;
    const std::uint64_t count = count_matters ? Fillable(of, member) : 1;
    if (count > most) best_.clear();
    if (count >= most) best_.push_back(member);
    most = std::max(most, count);
  }
  HEADRACE_CHECK(!best_.empty());
  if (count_matters && ties_ == RedoxOrderOptions::Ties::kFirst) return best_.front();
  return best_[Draw(slot, static_cast<std::uint32_t>(best_.size()))];
}

void RedoxProtocol::ChooseOfClass(const RedoxLayout::Virtual& of, Member member, std::uint32_t x) {
  const std::uint32_t slot = of.first_slot + x;
  const std::uint32_t left = shares(of, member)[x];
  const std::uint32_t wanted = std::min(left, layout_->slots()[slot].places - held_[slot]);
  if (wanted == 0) return;
  candidates_.clear();
  const std::span<const std::uint64_t> bits = taken(of, member);
  for (std::uint32_t o = x; o < of.width; o += of.slot_count) {
    if (!Has(bits, o)) candidates_.push_back(o);
  }
  HEADRACE_CHECK(candidates_.size() == left);
  for (std::uint32_t i = 0; i < wanted; ++i) {
    if (wanted < left) std::swap(candidates_[i], candidates_[i + Draw(slot, left - i)]);
    chosen_.push_back(candidates_[i]);
  }
}

void RedoxProtocol::ChoosePositions(const RedoxLayout::Virtual& of, Member member,
                                    std::uint32_t x) {
  chosen_.clear();
  if (layout_->classes() != 0) {
    ChooseOfClass(of, member, x);
    for (std::uint32_t other = 0; other < of.slot_count; ++other) {
      if (other != x) ChooseOfClass(of, member, other);
    }
    return;
  }
  chosen_.push_back(x);
  const std::span<const std::uint64_t> bits = taken(of, member);
  for (std::uint32_t i = 0; i < bits.size(); ++i) {
    for (std::uint64_t free = ~(bits[i] | full_[of.first_full + i]); free != 0; free &= free - 1) {
      const std::uint32_t o = i * 64 + static_cast<std::uint32_t>(std::countr_zero(free));
      if (o != x) chosen_.push_back(o);
    }
  }
}

void RedoxProtocol::Refill(std::uint32_t slot) {
  const RedoxLayout::Virtual& of = layout_->virtual_of(slot);
  const Member member = ChooseChunk(of, slot);
  ChoosePositions(of, member, slot - of.first_slot);
  Read& read = reads_.emplace_back();
  read.chunk = of.chunk + member * of.stride;
  const BlockMap::Block block = layout_->blocks().block(read.chunk);
  const auto first = static_cast<std::uint32_t>(Raw(block.first));
  // The request's own sample always has room: all others leave room for the largest sample.
  const std::uint64_t limit =
      memory_units_ - std::min<std::uint64_t>(memory_units_, layout_->largest_sample());
  for (const std::uint32_t position : chosen_) {
    const std::uint32_t units = layout_->units(first + position);
    if (memory_units_ != 0 && !read.kept.empty() && units_ + units > limit) continue;
    Keep(of, member, position);
    read.kept.push_back(position);
    units_ += units;
  }
  std::ranges::sort(read.kept);
  ++counts_.misses;
  counts_.read_samples += block.count;
  counts_.filled += read.kept.size();
  counts_.peak_units = std::max(counts_.peak_units, units_);
  ++reads_issued_;
}

void RedoxProtocol::Keep(const RedoxLayout::Virtual& of, Member member, std::uint32_t position) {
  const std::uint32_t x = position % of.slot_count;
  const std::uint32_t slot = of.first_slot + x;
  const auto first =
      static_cast<std::uint32_t>(Raw(layout_->blocks().block(of.chunk + member * of.stride).first));
  taken(of, member)[position / 64] |= Bit(position);
  if (layout_->classes() == 0) {
    full_[of.first_full + x / 64] |= Bit(x);
  } else {
    --shares_[of.first_share + std::uint64_t{member} * of.slot_count + x];
  }
  places_[layout_->slots()[slot].first_place + held_[slot]++] = {.sample = first + position,
                                                                 .read = reads_issued_};
  if (window_.has_value()) window_->Filled(slot);
}

std::vector<RedoxResident> RedoxProtocol::Residents() {
  std::vector<RedoxResident> all;
  const auto append = [&](std::span<const RedoxResident> held) {
    all.insert(all.end(), held.begin(), held.end());
  };
  for (std::uint32_t slot = 0; slot < held_.size(); ++slot) {
    append(std::span(places_).subspan(layout_->slots()[slot].first_place, held_[slot]));
    if (!window_.has_value()) continue;
    for (std::uint32_t node = 0; node < nodes_; ++node) append(window_->Held(node, slot));
  }
  std::ranges::sort(all, [](const RedoxResident& a, const RedoxResident& b) {
    return std::tie(a.read, a.sample) < std::tie(b.read, b.sample);
  });
  return all;
}

}  // namespace headrace
