#include "store/uring.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/check.h"
#include "store/file_io.h"

namespace headrace {
namespace {

// Best first. A disabled ring binds to the thread that enables it as its single issuer (Linux 5.10,
// 6.0); deferred task work runs only when that thread waits (6.1); cooperative work at least does
// not interrupt it (5.19).
constexpr std::array<unsigned, 3> kFlags = {
    IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    IORING_SETUP_COOP_TASKRUN, 0};

Status SetupStatus(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return Status(StatusCode::kFailedPrecondition,
                    "io_uring: EPERM: forbidden here, by the container's seccomp profile or by "
                    "sysctl kernel.io_uring_disabled; allow it, or read without it");
    case ENOSYS:
      return Status(StatusCode::kFailedPrecondition,
                    "io_uring: ENOSYS: not in this kernel; read without it");
    case ENOMEM:
      return Status(StatusCode::kResourceExhausted,
                    "io_uring: ENOMEM: no memory for a ring; raise the limit of locked memory "
                    "(ulimit -l)");
    default:
      return ErrnoStatus(error, "io_uring");
  }
}

}  // namespace

Uring::~Uring() {
  if (made_) io_uring_queue_exit(&ring_);
}

Status Uring::Make(unsigned entries) {
  int error = EINVAL;
  for (const unsigned flags : kFlags) {
    error = -io_uring_queue_init(entries, &ring_, flags);
    started_ = (flags & IORING_SETUP_R_DISABLED) == 0;
    if (error != EINVAL) break;
  }
  if (error != 0) return SetupStatus(error);
  made_ = true;
  return Status();
}

Status Uring::Start() {
  if (started_) return Status();
  // liburing 2.3 declares io_uring_enable_rings(), but its shared library lacks it.
  const long result =
      ::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  if (result != 0) return SetupStatus(errno);
  started_ = true;
  return Status();
}

io_uring_sqe& Uring::Next() {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  HEADRACE_CHECK(entry != nullptr);
  return *entry;
}

void Uring::Submit(unsigned answers) {
  const int result = answers == 0 ? io_uring_submit_and_get_events(&ring_)
                                  : io_uring_submit_and_wait(&ring_, answers);
  // Interrupted, temporarily out of memory, or the completion queue is full. Nothing else may fail.
  HEADRACE_CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY);
}

}  // namespace headrace
