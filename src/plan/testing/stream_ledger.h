#pragma once

#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/block_map.h"
#include "plan/order.h"

namespace headrace {

// Tracks what a stream keeps resident, and checks that its steps fit the memory that it promises.
// Run() inside ASSERT_NO_FATAL_FAILURE.
class StreamLedger {
 public:
  StreamLedger(const BlockMap& blocks, std::uint64_t limit_units)
      : blocks_(blocks), limit_(limit_units) {}

  void Run(const Step& step) {
    std::multiset<std::pair<std::uint64_t, std::uint64_t>> wanted;  // (block read, sample)
    for (const Delivery& delivery : step.deliveries) {
      if (delivery.block_read == kNoBlockRead) continue;
      wanted.emplace(delivery.block_read, Raw(delivery.sample));
    }
    for (const Release& release : step.releases) {
      wanted.emplace(release.block_read, Raw(release.sample));
    }
    for (const Parcel& parcel : step.parcels) {
      for (const Release& sent : parcel.samples) wanted.emplace(sent.block_read, Raw(sent.sample));
    }
    for (const BlockRead& read : step.reads) {
      ASSERT_EQ(read.number, reads_++);
      ASSERT_GE(read.count, 1);
      ASSERT_LE(Raw(read.first) + read.count, blocks_.sample_count());
      const std::vector<std::uint64_t> kept = Kept(read);
      std::uint64_t units = 0;
      for (const std::uint64_t sample : kept) units += Units(sample);
      // A read that does not fit waits until enough resident samples of the step are delivered.
      for (auto it = wanted.begin(); resident_units_ + units > limit_ && it != wanted.end();) {
        it = resident_.contains(*it) ? Drop(*it), wanted.erase(it) : std::next(it);
      }
      ASSERT_LE(resident_units_ + units, limit_) << "read " << read.number;
      resident_units_ += units;
      for (const std::uint64_t sample : kept) resident_.emplace(read.number, sample);
    }
    for (const auto& each : wanted) {
      ASSERT_TRUE(resident_.contains(each)) << "read " << each.first << " sample " << each.second;
      Drop(each);
    }
  }

  static std::vector<std::uint64_t> Kept(const BlockRead& read) {
    std::vector<std::uint64_t> kept;
    for (const std::uint32_t at : read.kept) kept.push_back(Raw(read.first) + at);
    for (std::uint32_t at = 0; read.kept.empty() && at < read.count; ++at) {
      kept.push_back(Raw(read.first) + at);
    }
    return kept;
  }

  [[nodiscard]] std::uint64_t resident_units() const { return resident_units_; }
  [[nodiscard]] std::multiset<std::uint64_t> Samples() const {
    std::multiset<std::uint64_t> samples;
    for (const auto& [read, sample] : resident_) samples.insert(sample);
    return samples;
  }

 private:
  [[nodiscard]] std::uint64_t Units(std::uint64_t sample) const {
    std::uint32_t units = 0;
    blocks_.Charges(SampleId{sample}, {&units, 1});
    return units;
  }
  void Drop(const std::pair<std::uint64_t, std::uint64_t>& each) {
    resident_.erase(each);
    resident_units_ -= Units(each.second);
  }

  const BlockMap& blocks_;
  const std::uint64_t limit_;
  std::uint64_t reads_ = 0;
  std::uint64_t resident_units_ = 0;
  std::set<std::pair<std::uint64_t, std::uint64_t>> resident_;
};

}  // namespace headrace
