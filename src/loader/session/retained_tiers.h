#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "tier/tier.h"

namespace headrace {

// Retains tiers in memory after their session has ended, for the next one that reads the same
// dataset. A node service has them. Tiers in folders need no retaining.
//
// Thread safety: every method may be called from any thread.
class RetainedTiers {
 public:
  explicit RetainedTiers(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // `key` describes the contents and layout of a tier; Take() returns only a tier with an equal
  // key. Drops older tiers, oldest first, until all fit.
  void Put(std::string key, std::unique_ptr<Tier> tier) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Returns null if there is none.
  std::unique_ptr<Tier> Take(const std::string& key) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Drops tiers, oldest first, until the others take at most `bytes`.
  void ShrinkTo(std::uint64_t bytes) HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] std::uint64_t bytes() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::string key;
    std::unique_ptr<Tier> tier;
    std::uint64_t bytes = 0;
  };

  // As ShrinkTo(); the caller destroys what it returns, without the lock.
  std::list<Entry> DropTo(std::uint64_t bytes) HEADRACE_LOCKS_REQUIRED(mutex_);

  const std::uint64_t bytes_max_;
  mutable Mutex mutex_;
  std::list<Entry> retained_ HEADRACE_GUARDED_BY(mutex_);  // oldest first
  std::uint64_t bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
