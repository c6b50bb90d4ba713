#pragma once

#include <atomic>

namespace headrace {

// Decides how long the calls of one RemoteLoader wait for the node process, which may answer late
// or be stopped. The loader's `keep_waiting` calls GoesOn() every 50 ms.
//
// Before BeginClose() a call waits until a signal handler raises. After it, a call ends at its next
// GoesOn(). A call inside AskLast(), for the last statistics, may continue kLastLooks times.
//
// Thread safety: every method may be called from any thread.
class AnswerPatience {
 public:
  static constexpr int kLastLooks = 10;

  void BeginClose() { closing_.store(true); }
  [[nodiscard]] bool closing() const { return closing_.load(); }

  // `signals_pass` runs only before BeginClose(): the thread that closes may not call Python.
  template <typename SignalsPass>
  [[nodiscard]] bool GoesOn(SignalsPass signals_pass) const {
    if (closing()) return LooksLeft()-- > 0;
    return signals_pass();
  }

  // Returns the result of `ask`, which it calls on this thread.
  template <typename Ask>
  [[nodiscard]] static auto AskLast(Ask ask) {
    LooksLeft() = kLastLooks;
    auto answer = ask();
    LooksLeft() = 0;
    return answer;
  }

 private:
  static int& LooksLeft() {
    thread_local int left = 0;
    return left;
  }

  std::atomic<bool> closing_ = false;
};

}  // namespace headrace
