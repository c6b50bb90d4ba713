#include "plan/left_out.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

class LeftBlocks final : public BlockMap {
 public:
  LeftBlocks(std::shared_ptr<const BlockMap> blocks, std::shared_ptr<const LeftOut> left_out)
      : blocks_(std::move(blocks)), left_out_(std::move(left_out)) {
    for (std::uint64_t i = 0; i < blocks_->block_count(); ++i) {
      const std::uint64_t first = left_out_->PlacesBefore(blocks_->block(i).first);
      if (firsts_.empty() || firsts_.back() != first) firsts_.push_back(first);
    }
    if (firsts_.back() != left_out_->places()) firsts_.push_back(left_out_->places());
    std::vector<std::uint32_t> units;
    for (std::uint64_t i = 0; i < block_count(); ++i) {
      units.resize(block(i).count);
      Charges(block(i).first, units);
      std::uint64_t of_block = 0;
      for (const std::uint32_t each : units) {
        of_block += each;
        largest_sample_ = std::max<std::uint64_t>(largest_sample_, each);
      }
      total_units_ += of_block;
      largest_block_ = std::max(largest_block_, of_block);
    }
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return left_out_->places(); }
  [[nodiscard]] std::uint64_t block_count() const override { return firsts_.size() - 1; }
  [[nodiscard]] Block block(std::uint64_t position) const override {
    return {.first = SampleId{firsts_[position]},
            .count = static_cast<std::uint32_t>(firsts_[position + 1] - firsts_[position])};
  }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return blocks_->unit_bytes(); }
  void Charges(SampleId first, std::span<std::uint32_t> units) const override {
    std::size_t done = 0;
    while (done < units.size()) {  // Samples without one that is left out between them.
      const SampleId from = left_out_->At(SampleId{Raw(first) + done});
      std::size_t count = 1;
      while (done + count < units.size() && !left_out_->Has(SampleId{Raw(from) + count})) ++count;
      blocks_->Charges(from, units.subspan(done, count));
      done += count;
    }
  }
  [[nodiscard]] std::uint64_t total_units() const override { return total_units_; }
  [[nodiscard]] std::uint64_t largest_block() const override { return largest_block_; }
  [[nodiscard]] std::uint64_t largest_sample() const override { return largest_sample_; }

 private:
  const std::shared_ptr<const BlockMap> blocks_;
  const std::shared_ptr<const LeftOut> left_out_;
  std::vector<std::uint64_t> firsts_;  // of each block, then the number of places
  std::uint64_t total_units_ = 0;
  std::uint64_t largest_block_ = 0;
  std::uint64_t largest_sample_ = 0;
};

class LeftOrder final : public Order {
 public:
  LeftOrder(std::unique_ptr<Order> order, std::shared_ptr<const LeftOut> left_out)
      : order_(std::move(order)), left_out_(std::move(left_out)) {}

  std::optional<Step> Next() override {
    std::optional<Step> step = order_->Next();
    if (!step.has_value()) return step;
    for (BlockRead& read : step->reads) Translate(read);
    for (Delivery& each : step->deliveries) each.sample = left_out_->At(each.sample);
    for (Release& each : step->releases) each.sample = left_out_->At(each.sample);
    for (Parcel& parcel : step->parcels) {
      for (Release& each : parcel.samples) each.sample = left_out_->At(each.sample);
    }
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    return order_->counters();
  }
  [[nodiscard]] std::string Dump() const override { return order_->Dump(); }

 private:
  void Translate(BlockRead& read) const {
    const SampleId first = left_out_->At(read.first);
    const std::uint64_t last = Raw(left_out_->At(SampleId{Raw(read.first) + read.count - 1}));
    const std::uint64_t count = last - Raw(first) + 1;
    HEADRACE_CHECK(count <= 0xffff'ffff);
    if (count != read.count && read.kept.empty()) {
      for (std::uint32_t i = 0; i < read.count; ++i) read.kept.push_back(i);
    }
    for (std::uint32_t& each : read.kept) {
      const SampleId sample = left_out_->At(SampleId{Raw(read.first) + each});
      each = static_cast<std::uint32_t>(Raw(sample) - Raw(first));
    }
    read.first = first;
    read.count = static_cast<std::uint32_t>(count);
  }

  const std::unique_ptr<Order> order_;
  const std::shared_ptr<const LeftOut> left_out_;
};

}  // namespace

Result<std::shared_ptr<const LeftOut>> LeftOut::Make(SampleTable numbers,
                                                     std::uint64_t sample_count) {
  const std::vector<std::uint32_t>& list = *numbers;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= sample_count) {
      return OutOfRange("leaving out sample {}: the dataset has {}, numbered from 0", list[i],
                        Counted(sample_count, "sample"));
    }
    if (i != 0 && list[i] <= list[i - 1]) {
      return InvalidArgument(
          "leaving out samples: {} follows {}; the numbers must ascend, each once", list[i],
          list[i - 1]);
    }
  }
  return std::shared_ptr<const LeftOut>(new LeftOut(std::move(numbers), sample_count));
}

LeftOut::LeftOut(SampleTable numbers, std::uint64_t sample_count)
    : numbers_(std::move(numbers)), sample_count_(sample_count) {
  places_.reserve(numbers_->size());
  for (std::size_t i = 0; i < numbers_->size(); ++i) places_.push_back((*numbers_)[i] - i);
}

SampleId LeftOut::At(SampleId place) const {
  // Each number with at most so many places before it comes before the sample.
  const auto before = std::ranges::upper_bound(places_, Raw(place)) - places_.begin();
  return SampleId{Raw(place) + static_cast<std::uint64_t>(before)};
}

std::uint64_t LeftOut::PlacesBefore(SampleId sample) const {
  const auto before = std::ranges::lower_bound(*numbers_, Raw(sample)) - numbers_->begin();
  return Raw(sample) - static_cast<std::uint64_t>(before);
}

bool LeftOut::Has(SampleId sample) const {
  return std::ranges::binary_search(*numbers_, Raw(sample));
}

SampleTable LeftOut::Without(const SampleTable& table) const {
  if (table == nullptr || sample_count_ == 0 || table->size() % sample_count_ != 0) return table;
  const std::size_t width = table->size() / sample_count_;
  auto left = std::make_shared<std::vector<std::uint32_t>>();
  left->reserve(places() * width);
  for (std::uint64_t place = 0; place < places(); ++place) {
    const auto row = std::span(*table).subspan(Raw(At(SampleId{place})) * width, width);
    left->insert(left->end(), row.begin(), row.end());
  }
  return left;
}

Status CheckNoneLeftOut(const ListOrderOptions& list, const SampleTable& left_out) {
  if (left_out == nullptr) return Status();
  for (std::size_t i = 0; i < list.ids.size(); ++i) {
    if (!std::ranges::binary_search(*left_out, Raw(list.ids[i]))) continue;
    return InvalidArgument(
        "sampler position {}: sample {} is left out (skip=); give the sampler the numbers of the "
        "others only, or open the dataset without skip=",
        i, Raw(list.ids[i]));
  }
  return Status();
}

std::shared_ptr<const BlockMap> BlocksWithout(std::shared_ptr<const BlockMap> blocks,
                                              std::shared_ptr<const LeftOut> left_out) {
  return std::make_shared<LeftBlocks>(std::move(blocks), std::move(left_out));
}

std::unique_ptr<Order> OrderWithout(std::unique_ptr<Order> order,
                                    std::shared_ptr<const LeftOut> left_out) {
  return std::make_unique<LeftOrder>(std::move(order), std::move(left_out));
}

}  // namespace headrace
