#include "ipc/spawned_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

constexpr int kSocketInChild = 3;

// What posix_spawn() is called with.
class SpawnPlan {
 public:
  explicit SpawnPlan(int socket) {
    HEADRACE_CHECK(posix_spawn_file_actions_init(&files_) == 0);
    HEADRACE_CHECK(posix_spawnattr_init(&attributes_) == 0);
    Require(posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    Require(posix_spawn_file_actions_addopen(&files_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0));
    // Without close-on-exec, also where it has this number already.
    Require(posix_spawn_file_actions_adddup2(&files_, socket, kSocketInChild));
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

  Result<pid_t> Spawn(std::vector<std::string> arguments, std::string_view doing) {
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& each : arguments) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    pid_t pid = 0;
    const int error = error_ != 0 ? error_
                                  : posix_spawnp(&pid, pointers[0], &files_, &attributes_,
                                                 pointers.data(), environ);
    if (error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE) {
      return ResourceExhausted("{} ({}): {}{}", doing, arguments[0], ErrnoText(error),
                               error == EAGAIN ? "; raise the limit on processes (ulimit -u)" : "");
    }
    if (error != 0) {
      return FailedPrecondition("{} ({}): {}; see that this program is there and runs", doing,
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

// Whether the process has ended, or does within the time.
bool EndsWithin(int pidfd, std::int64_t time_ns) {
  pollfd process{.fd = pidfd, .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = ::poll(&process, 1, static_cast<int>(time_ns / kNsPerMs));
  while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace

Result<std::unique_ptr<SpawnedProcess>> SpawnedProcess::Start(
    const std::vector<std::string>& command, std::string_view doing) {
  HEADRACE_CHECK(!command.empty());
  HEADRACE_ASSIGN_OR_RETURN(auto ends, IpcConnection::MakePair());
  std::vector<std::string> arguments = command;
  arguments.push_back(std::to_string(kSocketInChild));
  arguments.push_back(std::to_string(::getpid()));
  HEADRACE_ASSIGN_OR_RETURN(const pid_t pid,
                            SpawnPlan(ends.second->fd()).Spawn(std::move(arguments), doing));
  return std::unique_ptr<SpawnedProcess>(new SpawnedProcess(std::move(ends.first), pid));
}

SpawnedProcess::SpawnedProcess(std::unique_ptr<IpcConnection> connection, pid_t pid)
    : connection_(std::move(connection)),
      pid_(pid),
      process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}

SpawnedProcess::~SpawnedProcess() { static_cast<void>(End()); }

std::string SpawnedProcess::End(std::int64_t grace_ns) {
  if (std::exchange(ended_, true)) return "was ended before";
  if (grace_ns > 0) static_cast<void>(EndsWithin(process_.get(), grace_ns));
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) return HowEnded(status);
  if (process_) {
    static_cast<void>(syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0));
    if (!EndsWithin(process_.get(), kEndNs)) return "does not end: its storage does not answer";
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
