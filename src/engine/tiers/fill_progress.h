#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "headrace/ids.h"

namespace headrace {

// How far a node is with filling its tiers: counts the planned inserts that are settled, since the
// sample was inserted or the plan has evicted it again.
//
// Thread safety: filled() may be called from any thread, the others from one at a time.
class FillProgress {
 public:
  explicit FillProgress(std::uint64_t samples) : awaited_(samples) {}

  // The plan inserts a sample.
  void Await(SampleId sample) { awaited_[Raw(sample)] = true; }
  // The sample was inserted, or the plan evicts it.
  void End(SampleId sample) {
    if (!awaited_[Raw(sample)]) return;
    awaited_[Raw(sample)] = false;
    filled_.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t filled() const {  // modulo 2^32
    return filled_.load(std::memory_order_relaxed);
  }

 private:
  std::vector<bool> awaited_;  // by sample
  std::atomic<std::uint32_t> filled_ = 0;
};

}  // namespace headrace
