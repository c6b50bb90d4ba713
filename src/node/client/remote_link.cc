#include "node/client/remote_link.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/process_id.h"
#include "base/unique_fd.h"

namespace headrace {
namespace {

// How long a process that has closed its sockets may take to end.
constexpr int kEndingMillis = 1000;
constexpr char kRemedy[] = "; make a new loader and continue from the last state_dict()";

// "killed by signal 9", "with status 3"; empty where the system does not tell, as of what is no
// child of ours. Leaves the child to be waited for.
std::string HowItEnded(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return "";
  if (info.si_pid != pid) return "";
  if (info.si_code == CLD_EXITED) return "with status " + std::to_string(info.si_status);
  return "killed by signal " + std::to_string(info.si_status);
}

// Whether the process has ended, or does soon.
bool Ends(pid_t pid) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return true;  // There is none; or the system has no such call.
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, kEndingMillis) == 1;
}

}  // namespace

pid_t RemoteLink::CurrentProcess() { return ProcessId(); }

bool RemoteLink::forked() const { return ProcessId() != pid_; }

void RemoteLink::HoldNotes(std::size_t count) {
  MutexLock lock(mutex_);
  held_max_ = std::max<std::size_t>(1, count);
}

Status RemoteLink::SendNotes(bool waiting, std::int64_t timeout_ns) {
  notes_.waiting = waiting;
  Status said = connection_->Send(Encode(ClientMessage(notes_)), {}, timeout_ns);
  if (said.code() != StatusCode::kDeadlineExceeded) notes_ = {};  // Else with the next message.
  return said;
}

Status RemoteLink::Say(const ClientMessage& message, std::int64_t timeout_ns) {
  HEADRACE_ASSIGN_OR_RETURN(const IpcMessage packed, Pack(message));
  std::vector<int> fds;
  for (const UniqueFd& fd : packed.fds) fds.push_back(fd.get());
  MutexLock lock(mutex_);
  if (!notes_.taken.empty() || !notes_.let_go.empty()) {
    HEADRACE_RETURN_IF_ERROR(SendNotes(/*waiting=*/false, timeout_ns));
  }
  return connection_->Send(packed.bytes, fds, timeout_ns);
}

Status RemoteLink::NoteWaiting() {
  MutexLock lock(mutex_);
  waiting_ = true;
  return SendNotes(/*waiting=*/true, /*timeout_ns=*/-1);
}

void RemoteLink::NoteTaken(std::uint64_t number) {
  MutexLock lock(mutex_);
  waiting_ = false;
  notes_.taken.push_back({.number = number, .at_ns = MonotonicClock().NowNanos()});
  if (notes_.taken.size() < held_max_) return;
  static_cast<void>(SendNotes(/*waiting=*/false, /*timeout_ns=*/-1));  // A waiter gets the error.
}

void RemoteLink::LetGo(std::uint64_t number) {
  if (forked()) return;
  MutexLock lock(mutex_);
  notes_.let_go.push_back(number);
  if (!waiting_ && notes_.let_go.size() < held_max_) return;
  static_cast<void>(SendNotes(/*waiting=*/false, /*timeout_ns=*/0));
}

std::string RemoteLink::Node() const {
  return fmt::format("the node process (pid {}) of job '{}'", node_pid(), job_);
}

Status RemoteLink::Explain(const Status& status) const {
  if (status.code() != StatusCode::kUnavailable) return status;
  const std::string process = Node();
  if (!Ends(node_pid())) {
    return Status(StatusCode::kUnavailable,
                  process +
                      " closed its connection to this rank, because the rank left its messages "
                      "unread, as a suspended process does" +
                      kRemedy);
  }
  const std::string how = HowItEnded(node_pid());
  const std::string gone =
      how.empty() ? " ended: the process that started it, local rank 0 or a service, knows how"
                  : " ended: " + how;
  return Status(StatusCode::kUnavailable, process + gone + kRemedy);
}

}  // namespace headrace
