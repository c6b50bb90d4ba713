#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "tier/tier.h"

namespace headrace {

// Tiers in memory whose job has gone, kept for the next one of the same dataset: what a node
// service is for. Those in folders keep themselves.
//
// Thread safety: every method may be called from any thread.
class KeptTiers {
 public:
  explicit KeptTiers(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // `key` says what a tier holds and how: one of another key is useless. Lets go of those put
  // before, oldest first, until all fit.
  void Put(std::string key, std::unique_ptr<Tier> tier) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Null: there is none.
  std::unique_ptr<Tier> Take(const std::string& key) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Lets go of tiers, oldest first, until the others have `bytes` at most.
  void ShrinkTo(std::uint64_t bytes) HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] std::uint64_t bytes() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    std::string key;
    std::unique_ptr<Tier> tier;
    std::uint64_t bytes = 0;
  };

  const std::uint64_t bytes_max_;
  mutable Mutex mutex_;
  std::list<Kept> kept_ HEADRACE_GUARDED_BY(mutex_);  // oldest first
  std::uint64_t bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
