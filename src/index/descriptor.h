#pragma once

#include <unistd.h>

namespace headrace::internal {

// Owns a file descriptor; closes it at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // Negative if there is none.
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace headrace::internal
