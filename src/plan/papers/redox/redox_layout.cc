#include "plan/papers/redox/redox_layout.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSamplesMax = 0xffff'ffff;

}  // namespace

Result<std::shared_ptr<const RedoxLayout>> RedoxLayout::Make(const RedoxOrderOptions& options) {
  HEADRACE_CHECK(options.blocks != nullptr && options.chunks_per_virtual >= 1 &&
                 options.nodes >= 1);
  const std::uint64_t count = options.blocks->sample_count();
  if (count != options.job.sample_count) {
    return InvalidArgument("order redox: the blocks hold {}, the job {}", Counted(count, "sample"),
                           options.job.sample_count);
  }
  if (count > kSamplesMax) {
    return InvalidArgument("samples of order redox: got {}, must be at most {}; use order 'epoch'",
                           count, kSamplesMax);
  }
  return std::shared_ptr<const RedoxLayout>(new RedoxLayout(options));
}

RedoxLayout::RedoxLayout(const RedoxOrderOptions& options)
    : blocks_(options.blocks),
      chunk_count_(static_cast<std::uint32_t>(blocks_->block_count())),
      slot_of_(blocks_->sample_count()) {
  MakeVirtualChunks(options);
  const bool as_positions = std::ranges::all_of(virtual_chunks_, [&](const Virtual& each) {
    return options.slot_classes == 0 || each.width <= options.slot_classes;
  });
  classes_ = as_positions ? 0 : options.slot_classes;
  MakeSlots();
  if (blocks_->total_units() == blocks_->sample_count()) return;
  units_.resize(blocks_->sample_count());
  blocks_->Charges(SampleId{0}, units_);
  largest_sample_ = *std::ranges::max_element(units_);
}

void RedoxLayout::MakeVirtualChunks(const RedoxOrderOptions& options) {
  const std::uint64_t chunks = chunk_count_;
  const std::uint64_t virtual_count =
      (chunks + options.chunks_per_virtual - 1) / options.chunks_per_virtual;
  const bool interleaved = options.mapping == RedoxOrderOptions::Mapping::kInterleaved;
  virtual_chunks_.resize(virtual_count);
  for (std::uint64_t v = 0; v < virtual_count; ++v) {
    Virtual& made = virtual_chunks_[v];
    made.home = static_cast<std::uint32_t>(v % options.nodes);
    made.chunk = static_cast<std::uint32_t>(interleaved ? v : v * chunks / virtual_count);
    made.stride = interleaved ? static_cast<std::uint32_t>(virtual_count) : 1;
    made.chunk_count =
        static_cast<std::uint32_t>(interleaved ? (chunks - v + virtual_count - 1) / virtual_count
                                               : (v + 1) * chunks / virtual_count - made.chunk);
    for (std::uint32_t i = 0; i < made.chunk_count; ++i) {
      made.width = std::max(made.width, blocks_->block(made.chunk + i * made.stride).count);
    }
  }
}

void RedoxLayout::MakeSlots() {
  for (std::uint32_t v = 0; v < virtual_chunks_.size(); ++v) {
    Virtual& made = virtual_chunks_[v];
    made.first_slot = static_cast<std::uint32_t>(slots_.size());
    made.slot_count = classes_ == 0 ? made.width : std::min(made.width, classes_);
    made.first_full = full_count_;
    made.first_word = word_count_;
    made.first_share = share_count_;
    full_count_ += made.words();
    word_count_ += std::uint64_t{made.words()} * made.chunk_count;
    if (classes_ != 0) share_count_ += std::uint64_t{made.slot_count} * made.chunk_count;
    for (std::uint32_t x = 0; x < made.slot_count; ++x) {
      const std::uint32_t places = (made.width - x + made.slot_count - 1) / made.slot_count;
      slots_.push_back(
          {.virtual_chunk = v, .first_place = place_count_, .places = places, .home = made.home});
      place_count_ += places;
    }
    for (std::uint32_t i = 0; i < made.chunk_count; ++i) {
      const BlockMap::Block block = blocks_->block(made.chunk + i * made.stride);
      for (std::uint32_t o = 0; o < block.count; ++o) {
        slot_of_[Raw(block.first) + o] = made.SlotOf(o);
      }
    }
  }
}

std::vector<std::uint64_t> RedoxLayout::UnitsOfHomes(std::uint32_t nodes) const {
  std::vector<std::uint32_t> largest(slots_.size(), 0);
  for (std::uint32_t sample = 0; sample < sample_count(); ++sample) {
    std::uint32_t& most = largest[slot_of_[sample]];
    most = std::max(most, units(sample));
  }
  std::vector<std::uint64_t> sums(nodes, 0);
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    sums[slots_[slot].home] += std::uint64_t{largest[slot]} * slots_[slot].places;
  }
  return sums;
}

}  // namespace headrace
