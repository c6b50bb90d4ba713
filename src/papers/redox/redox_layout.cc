#include "papers/redox/redox_layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "base/units.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr std::uint64_t kLayoutSamplesMax = 0xffff'ffff;
// Below are those of virtual chunks.
constexpr std::uint64_t kFirstRemapItem = std::uint64_t{1} << 32;

}  // namespace

Result<std::shared_ptr<const RedoxLayout>> RedoxLayout::Make(const RedoxOrderOptions& options,
                                                             std::uint64_t epoch) {
  HEADRACE_CHECK(options.blocks != nullptr && options.chunks_per_virtual >= 1 &&
                 options.nodes >= 1);
  const std::uint64_t count = options.blocks->sample_count();
  if (count != options.job.sample_count) {
    return InvalidArgument(
        "order redox: the blocks hold {}, the job {}; give the blocks of its dataset",
        Counted(count, "sample"), options.job.sample_count);
  }
  if (count > kLayoutSamplesMax) {
    return InvalidArgument("samples of order redox: got {}, must be at most {}; use order 'epoch'",
                           count, kLayoutSamplesMax);
  }
  const std::shared_ptr<RedoxLayout> layout(new RedoxLayout(options));
  HEADRACE_RETURN_IF_ERROR(layout->Divide(options));
  if (options.remap) layout->Remap(options.job.seed, epoch, options.nodes);
  layout->MakeSlots(options.slot_classes);
  return std::shared_ptr<const RedoxLayout>(layout);
}

Status RedoxLayout::Divide(const RedoxOrderOptions& options) {
  chunk_count_ = static_cast<std::uint32_t>(blocks_->block_count());
  members_.reserve(chunk_count_);
  if (options.homes == nullptr) {
    std::vector<std::uint32_t> chunks(chunk_count_);
    std::iota(chunks.begin(), chunks.end(), 0U);
    Deal(options, 0, chunks);
    for (std::uint32_t v = 0; v < virtual_chunks_.size(); ++v) {
      virtual_chunks_[v].home = v % options.nodes;
    }
    return Status();
  }
  const std::vector<std::uint32_t>& homes = *options.homes;
  if (homes.size() != blocks_->sample_count()) {
    return InvalidArgument("homes of order redox: got {} numbers for {}, must be one a sample",
                           homes.size(), Counted(blocks_->sample_count(), "sample"));
  }
  std::vector<std::vector<std::uint32_t>> chunks_of(options.nodes);
  for (std::uint32_t chunk = 0; chunk < chunk_count_; ++chunk) {
    const BlockMap::Block block = blocks_->block(chunk);
    const auto of = std::span(homes).subspan(Raw(block.first), block.count);
    if (of.front() >= options.nodes || std::ranges::count(of, of.front()) != block.count) {
      return InvalidArgument(
          "homes of order redox: block {}, samples [{}, {}), must have one home below {}: got {}",
          chunk, Raw(block.first), Raw(block.first) + block.count, options.nodes,
          of.front() >= options.nodes ? std::to_string(of.front()) : "several");
    }
    chunks_of[of.front()].push_back(chunk);
  }
  for (std::uint32_t home = 0; home < options.nodes; ++home) Deal(options, home, chunks_of[home]);
  return Status();
}

// Deals chunks of one home to virtual chunks.
void RedoxLayout::Deal(const RedoxOrderOptions& options, std::uint32_t home,
                       std::span<const std::uint32_t> chunks) {
  const std::uint64_t count = chunks.size();
  const std::uint64_t parts = (count + options.chunks_per_virtual - 1) / options.chunks_per_virtual;
  const bool interleaved = options.mapping == RedoxOrderOptions::Mapping::kInterleaved;
  for (std::uint64_t v = 0; v < parts; ++v) {
    Virtual& made = virtual_chunks_.emplace_back();
    made.home = home;
    made.first_member = static_cast<std::uint32_t>(members_.size());
    const std::uint64_t end = interleaved ? count : (v + 1) * count / parts;
    for (std::uint64_t i = interleaved ? v : v * count / parts; i < end;
         i += interleaved ? parts : 1) {
      members_.push_back(chunks[i]);
    }
    made.chunk_count = static_cast<std::uint32_t>(members_.size()) - made.first_member;
  }
}

void RedoxLayout::Remap(std::uint64_t seed, std::uint64_t epoch, std::uint32_t nodes) {
  std::vector<std::vector<std::uint32_t>> chunks_of(nodes);
  for (const Virtual& each : virtual_chunks_) {
    for (std::uint32_t member = 0; member < each.chunk_count; ++member) {
      chunks_of[each.home].push_back(chunk(each, member));
    }
  }
  for (std::uint32_t home = 0; home < nodes; ++home) {
    Shuffle(chunks_of[home], Prng(seed, epoch, RandomStream::kChunk, kFirstRemapItem + home));
  }
  std::vector<std::size_t> next(nodes);
  for (const Virtual& each : virtual_chunks_) {
    for (std::uint32_t member = 0; member < each.chunk_count; ++member) {
      members_[each.first_member + member] = chunks_of[each.home][next[each.home]++];
    }
  }
}

void RedoxLayout::MakeSlots(std::uint32_t slot_classes) {
  for (Virtual& made : virtual_chunks_) {
    for (std::uint32_t i = 0; i < made.chunk_count; ++i) {
      made.width = std::max(made.width, blocks_->block(chunk(made, i)).count);
    }
  }
  const bool as_positions = std::ranges::all_of(virtual_chunks_, [&](const Virtual& each) {
    return slot_classes == 0 || each.width <= slot_classes;
  });
  classes_ = as_positions ? 0 : slot_classes;
  slot_of_.resize(blocks_->sample_count());
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
      const BlockMap::Block block = blocks_->block(chunk(made, i));
      for (std::uint32_t o = 0; o < block.count; ++o) {
        slot_of_[Raw(block.first) + o] = made.SlotOf(o);
      }
    }
  }
  if (blocks_->total_units() == blocks_->sample_count()) return;
  units_.resize(blocks_->sample_count());
  blocks_->Charges(SampleId{0}, units_);
  largest_sample_ = *std::ranges::max_element(units_);
}

}  // namespace headrace
