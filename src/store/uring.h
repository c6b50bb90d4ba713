#pragma once

// io_uring without its errnos. Included by sources of store/ only: it brings in liburing.h.

#include <liburing.h>

#include "base/status.h"

namespace headrace {

// One ring. Used by one thread, the one that called Start(), of the process that made it.
class Uring {
 public:
  Uring() = default;
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Makes the ring, with the best flags that this kernel has. On any thread.
  //
  // Errors: those of UringFileStore::Probe()
  Status Make(unsigned entries);

  // From here on the ring belongs to the calling thread.
  Status Start();

  // A free place; there is one as long as no more than `entries` are in use.
  io_uring_sqe& Next();

  // Hands over what was prepared, and waits until `answers` are there; 0: does not wait. May
  // return early, with part or nothing done: call it in a loop.
  void Submit(unsigned answers);

  // Calls `take(user_data, result)` for each answer that is there.
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
  bool started_ = true;  // false: made disabled, so that Start() may choose the thread
};

}  // namespace headrace
