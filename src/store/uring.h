#pragma once

// Wraps io_uring. Included by sources of store/ only: it includes liburing.h.

#include <liburing.h>

#include "headrace/status.h"

namespace headrace {

// One ring.
//
// Thread safety: used only by the thread that called Start(), of the process that made it.
class Uring {
 public:
  Uring() = default;
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Makes the ring, with the best flags of this kernel. On any thread.
  //
  // Errors: those of UringFileStore::Probe()
  Status Make(unsigned entries);

  // Binds the ring to the calling thread.
  Status Start();

  // A free submission entry; there is one while at most `entries` are in use.
  io_uring_sqe& Next();

  // Submits the prepared entries, and waits for `answers` completions; 0: does not wait. May return
  // early, with part or nothing done: call it in a loop.
  void Submit(unsigned answers);

  // Calls `take(user_data, result)` for each completion.
  template <typename Take>
  void Reap(Take take) {
    unsigned head = 0;
    unsigned taken = 0;
    io_uring_cqe* answer = nullptr;
    io_uring_for_each_cqe(&ring_, head, answer) {
      ++taken;
      take(answer->user_data, answer->res);
    }
    io_uring_cq_advance(&ring_, taken);
  }

 private:
  io_uring ring_ = {};
  bool made_ = false;
  bool started_ = true;  // false: made disabled, so that Start() can choose the thread
};

}  // namespace headrace
