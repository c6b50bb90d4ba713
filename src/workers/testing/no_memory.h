#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace headrace {

// While it lives, no shared memory can be made.
class NoMemory {
 public:
  NoMemory() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~NoMemory() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

 private:
  void (*const handler_)(int);
  rlimit before_{};
};

}  // namespace headrace
