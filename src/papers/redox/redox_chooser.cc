#include "papers/redox/redox_chooser.h"

#include <algorithm>
#include <bit>
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

RedoxChooser::RedoxChooser(const RedoxOrderOptions& options,
                           std::shared_ptr<const RedoxLayout> layout,
                           const std::vector<bool>& members, const RedoxPlaces& places)
    : layout_(std::move(layout)),
      places_(places),
      refill_(options.refill),
      ties_(options.ties),
      seed_(options.job.seed),
      taken_at_first_(layout_->word_count(), kAllBits),
      shares_at_first_(layout_->share_count(), 0) {
  for (const Virtual& of : layout_->virtual_chunks()) {
    for (std::uint32_t member = 0; member < of.chunk_count; ++member) {
      const BlockMap::Block block = layout_->blocks().block(layout_->chunk(of, member));
      std::uint64_t word = of.first_word + std::uint64_t{member} * of.words();
      if (members.empty() && layout_->classes() == 0) {
        for (std::uint32_t o = 0; o < block.count; o += 64, ++word) {
          const std::uint32_t left = block.count - o;
          taken_at_first_[word] = left >= 64 ? 0 : kAllBits << left;
        }
        continue;
      }
      for (std::uint32_t o = 0; o < block.count; ++o) {
        if (!members.empty() && !members[Raw(block.first) + o]) continue;
        taken_at_first_[word + o / 64] &= ~Bit(o);
        if (layout_->classes() == 0) continue;
        ++shares_at_first_[of.first_share + std::uint64_t{member} * of.slot_count +
                           o % of.slot_count];
      }
    }
  }
}

void RedoxChooser::Begin(std::uint64_t epoch) {
  taken_ = taken_at_first_;
  shares_ = shares_at_first_;
  draws_.clear();
  for (std::uint64_t v = 0; v < layout_->virtual_chunks().size(); ++v) {
    draws_.emplace_back(seed_, epoch, RandomStream::kChunk, v);
  }
}

bool RedoxChooser::CanFill(const Virtual& of, std::uint32_t member, std::uint32_t x) const {
  return layout_->classes() == 0 ? !Has(taken(of, member), x) : shares(of, member)[x] != 0;
}

std::uint64_t RedoxChooser::Fillable(const Virtual& of, std::uint32_t member) const {
  std::uint64_t sum = 0;
  if (layout_->classes() == 0) {
    const std::uint64_t* const bits = taken(of, member).data();
    const std::uint64_t* const full = places_.full(of).data();
    for (std::uint32_t i = 0; i < of.words(); ++i) {
      sum += static_cast<std::uint64_t>(std::popcount(~(bits[i] | full[i])));
    }
    return sum;
  }
  const std::span<const std::uint32_t> left = shares(of, member);
  for (std::uint32_t x = 0; x < of.slot_count; ++x) {
    sum += std::min(left[x], places_.Free(of.first_slot + x));
  }
  return sum;
}

std::uint32_t RedoxChooser::ChooseChunk(std::uint32_t slot) {
  const Virtual& of = layout_->virtual_of(slot);
  const bool count_matters = refill_ == RedoxOrderOptions::Refill::kMaxFill;
  best_.clear();
  std::uint64_t most = 0;
  for (std::uint32_t member = 0; member < of.chunk_count; ++member) {
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

void RedoxChooser::ChooseOfClass(const Virtual& of, std::uint32_t member, std::uint32_t x) {
  const std::uint32_t slot = of.first_slot + x;
  const std::uint32_t left = shares(of, member)[x];
  const std::uint32_t wanted = std::min(left, places_.Free(slot));
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

std::span<const std::uint32_t> RedoxChooser::ChoosePositions(std::uint32_t slot,
                                                             std::uint32_t member) {
  const Virtual& of = layout_->virtual_of(slot);
  const std::uint32_t x = slot - of.first_slot;
  chosen_.clear();
  if (layout_->classes() != 0) {
    ChooseOfClass(of, member, x);
    for (std::uint32_t other = 0; other < of.slot_count; ++other) {
      if (other != x) ChooseOfClass(of, member, other);
    }
    return chosen_;
  }
  chosen_.push_back(x);
  const std::span<const std::uint64_t> bits = taken(of, member);
  const std::span<const std::uint64_t> full = places_.full(of);
  for (std::uint32_t i = 0; i < bits.size(); ++i) {
    for (std::uint64_t free = ~(bits[i] | full[i]); free != 0; free &= free - 1) {
      const std::uint32_t o = i * 64 + static_cast<std::uint32_t>(std::countr_zero(free));
      if (o != x) chosen_.push_back(o);
    }
  }
  return chosen_;
}

}  // namespace headrace
