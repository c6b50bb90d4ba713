#pragma once

#include <atomic>

namespace headrace {

// A read that two nodes were asked for. The first that sends bytes has it: it alone writes into the
// read's memory, and it alone says how the read ended. If neither sends any, the later to end says.
//
// Thread safety: every method may be called from any thread.
class HedgedRead {
 public:
  // Whether `runner`, one of the two, has the read, now or since before.
  bool Claim(const void* runner) {
    const void* nobody = nullptr;
    return winner_.compare_exchange_strong(nobody, runner) || nobody == runner;
  }
  // Whether the other runner has it.
  [[nodiscard]] bool IsLost(const void* runner) const {
    const void* const winner = winner_.load();
    return winner != nullptr && winner != runner;
  }
  // A runner has ended, once. Whether it is to say so.
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
