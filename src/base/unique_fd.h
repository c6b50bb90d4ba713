#pragma once

#include <unistd.h>

#include <utility>

namespace headrace {

// Owns a file descriptor and closes it. Ignores errors of close(): a writer that must detect them
// calls fsync() first.
//
// Thread safety: thread-compatible: const calls may be concurrent.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}  // negative: no descriptor
  ~UniqueFd() { Reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  // Negative if it owns no descriptor.
  [[nodiscard]] int get() const { return fd_; }
  // Gives up ownership: the caller must close the descriptor.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) (void)::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace headrace
