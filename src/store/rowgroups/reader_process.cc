#include "store/rowgroups/reader_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "ipc/wire.h"

namespace headrace {
namespace {

constexpr int kSocketInReader = 3;
constexpr std::int64_t kAskEveryNs = 50 * kNsPerMs;
constexpr std::size_t kMessageBytesMax = 1 << 20;  // of an error

// What posix_spawn() is called with.
class SpawnPlan {
 public:
  explicit SpawnPlan(int socket) {
    HEADRACE_CHECK(posix_spawn_file_actions_init(&files_) == 0);
    HEADRACE_CHECK(posix_spawnattr_init(&attributes_) == 0);
    Require(posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    Require(posix_spawn_file_actions_addopen(&files_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0));
    // Without close-on-exec, also where it has this number already.
    Require(posix_spawn_file_actions_adddup2(&files_, socket, kSocketInReader));
    sigset_t blocked;
    sigset_t all;
    sigemptyset(&blocked);
    sigfillset(&all);
    sigaddset(&blocked, SIGINT);  // A terminal's Ctrl-C comes to all processes; this one is killed.
    Require(posix_spawnattr_setsigmask(&attributes_, &blocked));
    Require(posix_spawnattr_setsigdefault(&attributes_, &all));
    Require(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  Result<pid_t> Spawn(std::vector<std::string> arguments) {
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& each : arguments) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    pid_t pid = 0;
    const int error = error_ != 0 ? error_
                                  : posix_spawnp(&pid, pointers[0], &files_, &attributes_,
                                                 pointers.data(), environ);
    if (error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE) {
      return ResourceExhausted("starting a reader of row groups ({}): {}{}", arguments[0],
                               ErrnoText(error),
                               error == EAGAIN ? "; raise the limit on processes (ulimit -u)" : "");
    }
    if (error != 0) {
      return FailedPrecondition(
          "starting a reader of row groups ({}): {}; see that this program is there and runs",
          arguments[0], ErrnoText(error));
    }
    return pid;
  }

 private:
  void Require(int error) {
    if (error_ == 0) error_ = error;
  }

  int error_ = 0;  // the first
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

std::string HowEnded(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ReaderProcess>> ReaderProcess::Start(
    const std::vector<std::string>& command) {
  if (command.empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "starting a reader of row groups: this process has no command for it; import "
                  "headrace.formats, or start headrace-node with --group-reader");
  }
  HEADRACE_ASSIGN_OR_RETURN(auto ends, IpcConnection::MakePair());
  std::vector<std::string> arguments = command;
  arguments.push_back(std::to_string(kSocketInReader));
  arguments.push_back(std::to_string(::getpid()));
  HEADRACE_ASSIGN_OR_RETURN(const pid_t pid,
                            SpawnPlan(ends.second->fd()).Spawn(std::move(arguments)));
  return std::unique_ptr<ReaderProcess>(new ReaderProcess(std::move(ends.first), pid));
}

ReaderProcess::ReaderProcess(std::unique_ptr<IpcConnection> connection, pid_t pid)
    : connection_(std::move(connection)),
      pid_(pid),
      process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}

ReaderProcess::~ReaderProcess() { static_cast<void>(End()); }

Result<std::shared_ptr<SharedMemory>> ReaderProcess::Decode(const GroupRequest& request,
                                                            std::uint64_t bytes,
                                                            const std::function<bool()>& wanted) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                            SharedMemory::Make("headrace-group", bytes));
  WireWriter body;
  for (const std::string& each : {request.format, request.path, request.part}) body.PutString(each);
  WireWriter message;
  message.PutCount(1);  // one new memory
  message.PutU64(0);    // its number
  message.PutU64(bytes);
  message.PutCount(0);  // memory that is gone
  message.PutBytes(body.bytes());
  const int fd = memory->fd();
  const Status sent = connection_->Send(message.bytes(), std::span(&fd, 1));
  if (sent.code() == StatusCode::kUnavailable) return Ended();
  HEADRACE_RETURN_IF_ERROR(sent);
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<std::byte> answer, Await(wanted));
  WireReader reader("a reader's answer", answer);
  const std::uint64_t written = reader.TakeU64();
  Status status;
  reader.TakeStatus(status, kMessageBytesMax);
  if (const Status finished = reader.Finish(); !finished.ok()) {
    usable_ = false;
    return finished;
  }
  HEADRACE_RETURN_IF_ERROR(status);
  if (written != bytes) {
    return DataLoss("it decodes to {} bytes, the index says {}; index the dataset again", written,
                    bytes);
  }
  return memory;
}

Result<std::vector<std::byte>> ReaderProcess::Await(const std::function<bool()>& wanted) {
  const MonotonicClock clock;
  std::int64_t wanted_ns = clock.NowNanos();  // when it was wanted last
  for (;;) {
    Result<std::optional<IpcMessage>> taken = connection_->Receive(kAskEveryNs);
    if (taken.ok() && taken.value().has_value()) return std::move(taken.value()->bytes);
    if (!taken.ok() && taken.status().code() == StatusCode::kUnavailable) return Ended();
    if (!taken.ok()) {
      usable_ = false;
      return taken.status();
    }
    if (wanted()) {
      wanted_ns = clock.NowNanos();
    } else if (clock.NowNanos() - wanted_ns >= kGraceNs) {
      static_cast<void>(End());
      return Status(StatusCode::kCancelled, "stop requested");
    }
  }
}

// Its end of the socket closes before the process has ended: how it ends is not known at once.
Status ReaderProcess::Ended() {
  pollfd process{.fd = process_.get(), .events = POLLIN, .revents = 0};
  static_cast<void>(::poll(&process, process_ ? 1 : 0, static_cast<int>(kGraceNs / kNsPerMs)));
  const std::string how = End();
  return {StatusCode::kUnavailable,
          fmt::format("its reader, process {}, {}; read the kernel's log (dmesg)", pid_, how)};
}

std::string ReaderProcess::End() {
  usable_ = false;
  if (std::exchange(ended_, true)) return "was ended before";
  pollfd process{.fd = process_.get(), .events = POLLIN, .revents = 0};
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) return HowEnded(status);
  if (process_) {
    static_cast<void>(syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0));
    int ready = 0;
    do ready = ::poll(&process, 1, static_cast<int>(kEndNs / kNsPerMs));
    while (ready < 0 && errno == EINTR);
    if (ready == 0) return "does not end: its storage does not answer";
  } else {
    static_cast<void>(::kill(pid_, SIGKILL));
  }
  pid_t waited = 0;
  do waited = ::waitpid(pid_, &status, 0);
  while (waited < 0 && errno == EINTR);
  // A process that has set SIGCHLD to be ignored learns nothing.
  return waited == pid_ ? HowEnded(status) : "ended";
}

}  // namespace headrace
