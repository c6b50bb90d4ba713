#include "workers/worker_channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "ipc/wire.h"

namespace headrace {
namespace {

// Of a process that its host left behind.
constexpr int kOrphanExit = 1;
// Of one that is new, in a message.
constexpr std::size_t kMemoryBytes = 2 * sizeof(std::uint64_t);

}  // namespace

Result<std::unique_ptr<WorkerChannel>> WorkerChannel::Make(UniqueFd connection, pid_t host) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<IpcConnection> made,
                            IpcConnection::FromFd(std::move(connection)));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) {
    return ResourceExhausted("making a worker's channel: eventfd: {}", ErrnoText(errno));
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
  WireReader reader("a task", message.bytes);
  const auto fresh = reader.TakeVector(kIpcFdsMax, kMemoryBytes, [](WireReader& from) {
    const std::uint64_t number = from.TakeU64();
    return std::pair(number, from.TakeU64());
  });
  received.gone = reader.TakeVector(kIpcMessageBytesMax, sizeof(std::uint64_t),
                                    [](WireReader& from) { return from.TakeU64(); });
  received.body = reader.TakeBytes(kIpcMessageBytesMax);
  if (fresh.size() != message.fds.size()) {
    reader.Refuse(
        fmt::format("{} new memories with {} descriptors", fresh.size(), message.fds.size()));
  }
  HEADRACE_RETURN_IF_ERROR(reader.Finish());
  for (std::size_t i = 0; i < message.fds.size(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                              SharedMemory::Map(std::move(message.fds[i]), fresh[i].second));
    received.fresh.emplace_back(fresh[i].first, std::move(memory));
  }
  received.message = std::move(message.bytes);
  return std::optional<Received>(std::move(received));
}

Status WorkerChannel::Send(std::span<const std::byte> message) {
  return connection_->Send(message);
}

}  // namespace headrace
