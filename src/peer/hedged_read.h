#pragma once

#include <atomic>

namespace headrace {

// A read that two nodes were asked for. The first one to send bytes owns it: only that one writes
// into the read's memory and reports how the read ended. If neither sends any, the one that ends
// last reports.
//
// Thread safety: every method may be called from any thread.
class HedgedRead {
 public:
  // Whether `runner`, one of the two, owns the read, now or since an earlier call.
  bool Claim(const void* runner) {
    const void* nobody = nullptr;
    return winner_.compare_exchange_strong(nobody, runner) || nobody == runner;
  }
  // Whether the other runner owns it.
  [[nodiscard]] bool IsLost(const void* runner) const {
    const void* const winner = winner_.load();
    return winner != nullptr && winner != runner;
  }
  // A runner has ended; call it once for each. Returns whether it must report the end.
  bool End(const void* runner) {
    const bool is_last = left_.fetch_sub(1) == 1;
    const void* const winner = winner_.load();
    return winner == runner || (winner == nullptr && is_last);
  }

 private:
  std::atomic<const void*> winner_ = nullptr;
  std::atomic<int> left_ = 2;
};

}  // namespace headrace
