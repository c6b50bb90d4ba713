#include "runtime/workers/worker_channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>

#include "base/check.h"

namespace headrace {
namespace {

// Of a process that its host left behind.
constexpr int kOrphanExit = 1;

// Takes the words before a message's body; false if there are not as many as it says.
bool TakeWords(std::span<const std::byte> message, std::size_t count, std::size_t& at,
               std::vector<std::uint64_t>& words) {
  if (count > (message.size() - at) / sizeof(std::uint64_t)) return false;
  words.resize(count);
  if (count > 0) std::memcpy(words.data(), message.data() + at, count * sizeof(std::uint64_t));
  at += count * sizeof(std::uint64_t);
  return true;
}

Status NoMessage(const IpcMessage& message) {
  return Status(StatusCode::kDataLoss, "reading a task: " + std::to_string(message.bytes.size()) +
                                           " bytes and " + std::to_string(message.fds.size()) +
                                           " descriptors are no message of a host");
}

}  // namespace

Result<std::unique_ptr<WorkerChannel>> WorkerChannel::Make(UniqueFd connection, pid_t host) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<IpcConnection> made,
                            IpcConnection::FromFd(std::move(connection)));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) {
    return Status(StatusCode::kResourceExhausted,
                  "making a worker's channel: eventfd: " + std::generic_category().message(errno));
  }
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, host, 0)));
  if (!process && errno != ESRCH) {
    // Comes when the thread ends that started the worker, if that is sooner: not the first choice.
    HEADRACE_CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  }
  return std::unique_ptr<WorkerChannel>(
      new WorkerChannel(std::move(made), std::move(process), std::move(wake)));
}

WorkerChannel::WorkerChannel(std::unique_ptr<IpcConnection> connection, UniqueFd host,
                             UniqueFd wake)
    : connection_(std::move(connection)),
      host_(std::move(host)),
      wake_(std::move(wake)),
      watcher_([this] { Watch(); }) {}

WorkerChannel::~WorkerChannel() {
  const std::uint64_t one = 1;
  HEADRACE_CHECK(write(wake_.get(), &one, sizeof one) == sizeof one);
  watcher_.join();
}

void WorkerChannel::Watch() {
  std::array<pollfd, 3> polled{{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                {.fd = connection_->fd(), .events = 0, .revents = 0},
                                {.fd = host_.get(), .events = POLLIN, .revents = 0}}};
  while (poll(polled.data(), polled.size(), -1) < 0) HEADRACE_CHECK(errno == EINTR);
  if (polled[0].revents != 0) return;
  // Any answer, an interruption too, but the end of the watch is the end of the process.
  if (poll(polled.data(), 1, static_cast<int>(kGraceNs / kNsPerMs)) > 0) return;
  _exit(kOrphanExit);
}

Result<std::optional<WorkerChannel::Received>> WorkerChannel::Receive() {
  Result<std::optional<IpcMessage>> taken = connection_->Receive();
  if (!taken.ok() && taken.status().code() == StatusCode::kUnavailable) {
    return std::optional<Received>();
  }
  HEADRACE_RETURN_IF_ERROR(taken.status());
  HEADRACE_CHECK(taken.value().has_value());
  IpcMessage& message = *taken.value();
  Received received;
  std::size_t at = 0;
  std::vector<std::uint64_t> count;
  std::vector<std::uint64_t> fresh;
  if (!TakeWords(message.bytes, 1, at, count) || count[0] != message.fds.size() ||
      !TakeWords(message.bytes, 2 * count[0], at, fresh) ||
      !TakeWords(message.bytes, 1, at, count) ||
      !TakeWords(message.bytes, count[0], at, received.gone)) {
    return NoMessage(message);
  }
  for (std::size_t i = 0; i < message.fds.size(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                              SharedMemory::Map(std::move(message.fds[i]), fresh[2 * i + 1]));
    received.fresh.emplace_back(fresh[2 * i], std::move(memory));
  }
  received.message = std::move(message.bytes);
  received.body = at;
  return std::optional<Received>(std::move(received));
}

Status WorkerChannel::Send(std::span<const std::byte> message) {
  return connection_->Send(message);
}

}  // namespace headrace
