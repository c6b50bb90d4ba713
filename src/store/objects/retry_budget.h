#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace headrace {

// Whether one more request may be sent for a read that has one already: a retry or a hedge. Both
// take a token of one budget, so that a store that fails gets at most a tenth more requests than it
// answers, beside the first `tokens_max` (retry budgets and hedged requests: Dean and Barroso, "The
// tail at scale", 2013). Each read that succeeds gives a tenth of a token. Tries after kSlowDown,
// kFetcherGone and kSilent take none.
//
// A hedge takes a token of a second balance as well, which begins empty and gets a twentieth of a
// token for each read: in total, hedges are at most 5 % of the reads that succeeded.
//
// Thread safety: none; one thread drives. Cost: O(1).
class RetryBudget {
 public:
  struct Options {
    std::uint32_t tokens_max = 500;  // twice the largest window: all connections may break at once
    std::uint32_t hedges_max = 20;   // saved up at most
  };

  // The budget is full at first. The limits must not be 0.
  explicit RetryBudget(const Options& options)
      : tokens_max_(options.tokens_max * kUnits),
        hedges_max_(options.hedges_max * kUnits),
        tokens_(tokens_max_) {
    HEADRACE_CHECK(options.tokens_max > 0 && options.hedges_max > 0);
  }

  // A read succeeded.
  void Success() {
    tokens_ = std::min(tokens_ + kUnits / 10, tokens_max_);
    hedges_ = std::min(hedges_ + kUnits / 20, hedges_max_);
  }

  // These take what they need, or return false.
  bool TakeRetry() {
    if (tokens_ < kUnits) return false;
    tokens_ -= kUnits;
    return true;
  }
  bool TakeHedge() {
    if (hedges_ < kUnits || !TakeRetry()) return false;
    hedges_ -= kUnits;
    return true;
  }

 private:
  static constexpr std::uint64_t kUnits = 20;  // of a token: whole numbers add up without error

  const std::uint64_t tokens_max_;
  const std::uint64_t hedges_max_;
  std::uint64_t tokens_;
  std::uint64_t hedges_ = 0;
};

}  // namespace headrace
