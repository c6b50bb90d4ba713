#pragma once

#include <atomic>

namespace headrace {

// Decides how long the calls of one RemoteLoader wait for the node process, which may answer late
// or be stopped: its `keep_waiting` asks GoesOn(), every 50 ms.
//
// Until BeginClose() a call waits as long as no signal handler raises. From then on it ends when it
// asks next. The call that AskLast() makes for the last figures may ask kLastLooks times before.
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

  // What `ask` returns, a call on this thread.
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
