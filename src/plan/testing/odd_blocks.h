#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/block_map.h"

namespace headrace {

// Blocks and samples of given sizes: as uneven as a real dataset, without one.
class OddBlocks final : public BlockMap {
 public:
  static constexpr std::uint64_t kUnitBytes = 64;

  // `units` of each sample; `blocks`: number of samples of each block.
  OddBlocks(const std::vector<std::uint32_t>& blocks, std::vector<std::uint32_t> units)
      : units_(std::move(units)) {
    for (const std::uint32_t block : blocks) {
      const std::uint64_t first = firsts_.back();
      std::uint64_t sum = 0;
      for (std::uint64_t i = first; i < first + block; ++i) {
        sum += units_[i];
        largest_sample_ = std::max<std::uint64_t>(largest_sample_, units_[i]);
      }
      largest_block_ = std::max(largest_block_, sum);
      total_units_ += sum;
      firsts_.push_back(first + block);
    }
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return firsts_.back(); }
  [[nodiscard]] std::uint64_t block_count() const override { return firsts_.size() - 1; }
  [[nodiscard]] Block block(std::uint64_t position) const override {
    return {.first = SampleId{firsts_[position]},
            .count = static_cast<std::uint32_t>(firsts_[position + 1] - firsts_[position])};
  }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return kUnitBytes; }
  void Charges(SampleId first, std::span<std::uint32_t> units) const override {
    std::copy_n(units_.begin() + static_cast<std::ptrdiff_t>(Raw(first)), units.size(),
                units.begin());
  }
  [[nodiscard]] std::uint64_t total_units() const override { return total_units_; }
  [[nodiscard]] std::uint64_t largest_block() const override { return largest_block_; }
  [[nodiscard]] std::uint64_t largest_sample() const override { return largest_sample_; }

 private:
  const std::vector<std::uint32_t> units_;
  std::vector<std::uint64_t> firsts_ = {0};  // of each block, then sample_count()
  std::uint64_t total_units_ = 0;
  std::uint64_t largest_block_ = 0;
  std::uint64_t largest_sample_ = 0;
};

}  // namespace headrace
