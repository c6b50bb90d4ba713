#include "plan/block_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "headrace/index.h"
#include "index/homes/homes.h"

namespace headrace {
namespace {

constexpr std::uint64_t kBlockSamplesMax = 0xffff'ffff;

class UniformBlocks final : public BlockMap {
 public:
  UniformBlocks(std::uint64_t sample_count, std::uint64_t block_samples)
      : sample_count_(sample_count), block_samples_(block_samples) {
    HEADRACE_CHECK(sample_count >= 1 && block_samples >= 1 && block_samples <= kBlockSamplesMax);
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return sample_count_; }
  [[nodiscard]] std::uint64_t block_count() const override {
    return (sample_count_ + block_samples_ - 1) / block_samples_;
  }
  [[nodiscard]] Block block(std::uint64_t position) const override {
    const std::uint64_t first = position * block_samples_;
    const std::uint64_t count = std::min(block_samples_, sample_count_ - first);
    return {.first = SampleId{first}, .count = static_cast<std::uint32_t>(count)};
  }
  [[nodiscard]] std::uint64_t Find(SampleId sample) const override {
    return Raw(sample) / block_samples_;
  }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return 1; }
  void Charges(SampleId /*first*/, std::span<std::uint32_t> units) const override {
    std::ranges::fill(units, 1U);
  }
  [[nodiscard]] std::uint64_t total_units() const override { return sample_count_; }
  [[nodiscard]] std::uint64_t largest_block() const override {
    return std::min(block_samples_, sample_count_);
  }
  [[nodiscard]] std::uint64_t largest_sample() const override { return 1; }

 private:
  const std::uint64_t sample_count_;
  const std::uint64_t block_samples_;
};

// Samples looked up in one call.
constexpr std::uint64_t kRun = 1024;

// Calls visit(sample, bytes) for samples [first, first + count).
template <typename Visit>
void ForBytes(const Index& index, std::uint64_t first, std::uint64_t count, const Visit& visit) {
  std::array<std::uint64_t, kRun> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  for (std::uint64_t begin = first; begin < first + count; begin += kRun) {
    const std::span<std::uint64_t> run(bytes.data(), std::min(kRun, first + count - begin));
    index.SampleBytes(SampleId{begin}, run);
    for (std::size_t i = 0; i < run.size(); ++i) visit(begin + i, run[i]);
  }
}

// Stored bytes of a sample, on average.
std::uint64_t MeanBytes(const Index& index) {
  const std::uint64_t count = index.sample_count();
  std::uint64_t sum = 0;
  ForBytes(index, 0, count, [&](std::uint64_t /*sample*/, std::uint64_t bytes) { sum += bytes; });
  return count == 0 ? 0 : sum / count;
}

// The number of samples of each block if all are equal, except that the last may be shorter; else
// 0. `firsts`: the first sample of each block, then the number of samples.
std::uint64_t EvenSamples(const std::vector<std::uint64_t>& firsts) {
  if (firsts.size() < 2) return 0;
  const std::uint64_t each = firsts[1] - firsts[0];
  for (std::size_t i = 1; i + 1 < firsts.size(); ++i) {
    const std::uint64_t count = firsts[i + 1] - firsts[i];
    const bool last = i + 2 == firsts.size();
    if (last ? count > each : count != each) return 0;
  }
  return each;
}

// The first sample of each block: multiples of one number, or a table.
class BlockFirsts {
 public:
  // `each` samples a block; the last may have fewer.
  BlockFirsts(std::uint64_t sample_count, std::uint64_t each)
      : sample_count_(sample_count), each_(each), count_((sample_count + each - 1) / each) {}
  // `firsts`: the first sample of each block, then the number of samples.
  explicit BlockFirsts(std::vector<std::uint64_t> firsts)
      : sample_count_(firsts.back()), each_(EvenSamples(firsts)), count_(firsts.size() - 1) {
    if (each_ == 0) table_ = std::move(firsts);
  }

  [[nodiscard]] std::uint64_t sample_count() const { return sample_count_; }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t each() const { return each_; }  // 0: sizes differ
  // For block count() the number of samples.
  [[nodiscard]] std::uint64_t First(std::uint64_t block) const {
    return each_ == 0 ? table_[block] : std::min(block * each_, sample_count_);
  }

 private:
  std::uint64_t sample_count_;
  std::uint64_t each_;
  std::uint64_t count_;
  std::vector<std::uint64_t> table_;
};

class IndexBlocks final : public BlockMap {
 public:
  IndexBlocks(std::shared_ptr<const Index> index, BlockFirsts firsts, std::uint64_t unit_bytes)
      : index_(std::move(index)),
        unit_bytes_(unit_bytes),
        unit_bits_(std::countr_zero(unit_bytes_)),
        firsts_(std::move(firsts)) {
    std::uint64_t block = 0;
    std::uint64_t of_block = 0;
    ForBytes(*index_, 0, sample_count(), [&](std::uint64_t sample, std::uint64_t bytes) {
      if (sample == firsts_.First(block + 1)) {
        ++block;
        of_block = 0;
      }
      const std::uint64_t units = Units(bytes);
      of_block += units;
      total_units_ += units;
      largest_block_ = std::max(largest_block_, of_block);
      largest_sample_ = std::max(largest_sample_, units);
    });
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return firsts_.sample_count(); }
  [[nodiscard]] std::uint64_t block_count() const override { return firsts_.count(); }
  [[nodiscard]] Block block(std::uint64_t position) const override {
    const std::uint64_t first = firsts_.First(position);
    return {.first = SampleId{first},
            .count = static_cast<std::uint32_t>(firsts_.First(position + 1) - first)};
  }
  [[nodiscard]] std::uint64_t Find(SampleId sample) const override {
    if (firsts_.each() != 0) return Raw(sample) / firsts_.each();
    return BlockMap::Find(sample);
  }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return unit_bytes_; }
  void Charges(SampleId first, std::span<std::uint32_t> units) const override {
    ForBytes(*index_, Raw(first), units.size(), [&](std::uint64_t sample, std::uint64_t bytes) {
      units[sample - Raw(first)] = Units(bytes);
    });
  }
  [[nodiscard]] std::uint64_t total_units() const override { return total_units_; }
  [[nodiscard]] std::uint64_t largest_block() const override { return largest_block_; }
  [[nodiscard]] std::uint64_t largest_sample() const override { return largest_sample_; }

 private:
  [[nodiscard]] std::uint32_t Units(std::uint64_t bytes) const {
    const std::uint64_t whole = (bytes + unit_bytes_ - 1) >> unit_bits_;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(whole, 1, 0xffff'ffff));
  }

  const std::shared_ptr<const Index> index_;
  const std::uint64_t unit_bytes_;
  const int unit_bits_;
  const BlockFirsts firsts_;
  std::uint64_t total_units_ = 0;
  std::uint64_t largest_block_ = 0;
  std::uint64_t largest_sample_ = 0;
};

class SampleBlocks final : public BlockMap {
 public:
  SampleBlocks(std::span<const std::uint64_t> sample_bytes, std::uint64_t unit_bytes)
      : unit_bytes_(unit_bytes) {
    units_.reserve(sample_bytes.size());
    for (const std::uint64_t bytes : sample_bytes) {
      const std::uint64_t whole = bytes / unit_bytes + (bytes % unit_bytes != 0);
      units_.push_back(
          static_cast<std::uint32_t>(std::clamp<std::uint64_t>(whole, 1, 0xffff'ffff)));
      total_units_ += units_.back();
      largest_ = std::max<std::uint64_t>(largest_, units_.back());
    }
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return units_.size(); }
  [[nodiscard]] std::uint64_t block_count() const override { return units_.size(); }
  [[nodiscard]] Block block(std::uint64_t position) const override {
    return {.first = SampleId{position}, .count = 1};
  }
  [[nodiscard]] std::uint64_t Find(SampleId sample) const override { return Raw(sample); }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return unit_bytes_; }
  void Charges(SampleId first, std::span<std::uint32_t> units) const override {
    std::copy_n(units_.begin() + static_cast<std::ptrdiff_t>(Raw(first)), units.size(),
                units.begin());
  }
  [[nodiscard]] std::uint64_t total_units() const override { return total_units_; }
  [[nodiscard]] std::uint64_t largest_block() const override { return largest_; }
  [[nodiscard]] std::uint64_t largest_sample() const override { return largest_; }

 private:
  const std::uint64_t unit_bytes_;
  std::vector<std::uint32_t> units_;  // by sample
  std::uint64_t total_units_ = 0;
  std::uint64_t largest_ = 0;
};

Result<std::vector<std::uint64_t>> OwnBlocks(const Index& index) {
  std::vector<std::uint64_t> firsts;
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < index.block_count(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(const BlockInfo block, index.block(i));
    std::string wrong;
    if (Raw(block.first_sample) != next) {
      wrong = fmt::format("begins at sample {}, must begin at {}", Raw(block.first_sample), next);
    } else if (block.sample_count == 0 || block.sample_count > kBlockSamplesMax) {
      wrong = fmt::format("holds {}, must hold 1 to {}", Counted(block.sample_count, "sample"),
                          kBlockSamplesMax);
    }
    if (!wrong.empty()) {
      return DataLoss("block {} of the index {}; build the index again", i, wrong);
    }
    firsts.push_back(next);
    next += block.sample_count;
  }
  if (next != index.sample_count()) {
    return DataLoss("the blocks of the index hold {} of its {}; build the index again", next,
                    Counted(index.sample_count(), "sample"));
  }
  firsts.push_back(next);
  return firsts;
}

// Blocks of `each` consecutive samples, or fewer where the next sample has another home.
//
// Errors: those of Index::extent()
Result<BlockFirsts> EqualBlocks(const Index& index, std::uint64_t each) {
  const std::uint64_t count = index.sample_count();
  if (each == 1) return BlockFirsts(count, each);
  const Result<Homes> found = HomesOf(index);
  // What is wrong with homes matters to orders that have some.
  if (!found.ok() || found.value().count == 1) return BlockFirsts(count, each);
  const auto stored = std::ranges::find(index.fields(), false, &FieldInfo::is_inline);
  const auto field = static_cast<std::size_t>(stored - index.fields().begin());
  std::vector<std::uint64_t> firsts;
  std::uint32_t home = 0;
  for (std::uint64_t sample = 0; sample < count; ++sample) {
    HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index.extent(field, SampleId{sample}));
    const std::uint32_t next = found.value().of(extent.object);
    if (firsts.empty() || next != home || sample - firsts.back() == each) firsts.push_back(sample);
    home = next;
  }
  firsts.push_back(count);
  return BlockFirsts(std::move(firsts));
}

}  // namespace

std::uint64_t BlockMap::Find(SampleId sample) const {
  HEADRACE_CHECK(Raw(sample) < sample_count());
  std::uint64_t low = 0;
  std::uint64_t high = block_count();
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (Raw(block(middle).first) <= Raw(sample) ? low : high) = middle;
  }
  return low;
}

std::shared_ptr<const BlockMap> MakeUniformBlocks(std::uint64_t sample_count,
                                                  std::uint64_t block_samples) {
  return std::make_shared<UniformBlocks>(sample_count, block_samples);
}

Result<std::shared_ptr<const BlockMap>> MakeIndexBlocks(std::shared_ptr<const Index> index,
                                                        std::uint64_t block_samples,
                                                        std::uint64_t unit_bytes_min,
                                                        std::optional<std::uint64_t> sample_bytes) {
  HEADRACE_CHECK(std::has_single_bit(unit_bytes_min));
  if (block_samples > kBlockSamplesMax) {
    return InvalidArgument("block_samples: got {}, must be below 2^32", block_samples);
  }
  if (std::ranges::all_of(index->fields(), &FieldInfo::is_inline)) {
    return InvalidArgument(
        "an order that reads blocks: the dataset stores no field outside its index, so there is "
        "nothing to read; use order 'exact'");
  }
  const std::uint64_t mean = sample_bytes.has_value() ? *sample_bytes : MeanBytes(*index);
  const std::uint64_t unit_bytes = std::max(
      unit_bytes_min, std::bit_floor(std::clamp<std::uint64_t>(mean / 8, kUnitBytesMin, 4096)));
  if (block_samples == 0 && index->block_count() != 0) {
    HEADRACE_ASSIGN_OR_RETURN(std::vector<std::uint64_t> firsts, OwnBlocks(*index));
    return std::shared_ptr<const BlockMap>(std::make_shared<IndexBlocks>(
        std::move(index), BlockFirsts(std::move(firsts)), unit_bytes));
  }
  if (block_samples == 0) {
    block_samples = std::clamp<std::uint64_t>(kBlockBytes / std::max<std::uint64_t>(mean, 1), 1,
                                              kNeighboursMax);
  }
  HEADRACE_ASSIGN_OR_RETURN(BlockFirsts firsts, EqualBlocks(*index, block_samples));
  return std::shared_ptr<const BlockMap>(
      std::make_shared<IndexBlocks>(std::move(index), std::move(firsts), unit_bytes));
}

std::shared_ptr<const BlockMap> MakeBlocksInUnits(std::shared_ptr<const Index> index,
                                                  std::uint64_t block_samples,
                                                  std::uint64_t unit_bytes) {
  HEADRACE_CHECK(block_samples > 0 && std::has_single_bit(unit_bytes));
  const BlockFirsts firsts(index->sample_count(), block_samples);
  return std::make_shared<IndexBlocks>(std::move(index), firsts, unit_bytes);
}

std::shared_ptr<const BlockMap> MakeSampleBlocks(std::span<const std::uint64_t> sample_bytes,
                                                 std::uint64_t unit_bytes) {
  HEADRACE_CHECK(std::has_single_bit(unit_bytes));
  return std::make_shared<SampleBlocks>(sample_bytes, unit_bytes);
}

std::optional<BlockFacts> FactsForBlocks(const Index& index) {
  const std::uint64_t samples = index.sample_count();
  if (samples == 0 || index.block_count() != 0) return std::nullopt;
  return BlockFacts{.samples = samples,
                    .sample_bytes = std::max<std::uint64_t>(1, MeanBytes(index))};
}

std::vector<std::uint32_t> StoredBytes(const Index& index) {
  std::vector<std::uint32_t> all(index.sample_count());
  ForBytes(index, 0, all.size(), [&](std::uint64_t sample, std::uint64_t bytes) {
    all[sample] = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, 0xffff'ffff));
  });
  return all;
}

}  // namespace headrace
