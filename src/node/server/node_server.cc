#include "node/server/node_server.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/process_id.h"
#include "base/units.h"
#include "loader/machine/machine.h"
#include "node/protocol/messages.h"

namespace headrace {
namespace {

// A batch of the largest number of rows is described in a few MiB.
constexpr IpcQueueLimits kQueueLimits{
    .bytes_max = 64 * kMiB, .messages_max = 16384, .fds_max = 256};

Status OutOfOrder(const LaneClient& client, std::string_view message, std::string_view why) {
  return FailedPrecondition("receiving {} of process {}: {}; report this defect of headrace",
                            message, client.pid(), why);
}

Status CheckShare(const NodeServerOptions& options) {
  if (!options.service) {
    return InvalidArgument(
        "--share: got {}, but only jobs of a service share; add --service, or leave it out",
        FormatBytes(options.share_bytes));
  }
  const std::uint64_t most = options.memory_bytes > 0 ? options.memory_bytes : MemoryLimitBytes();
  if (options.share_bytes < most) return Status();
  return InvalidArgument(
      "--share: got {}, must be below {}, what the jobs and the share have together; give less, or "
      "more --memory",
      FormatBytes(options.share_bytes), FormatBytes(most));
}

std::vector<std::string> FoldersOf(const OpenSession& open) {
  std::vector<std::string> folders;
  for (const TierSpec& tier : open.options.tiers.tiers) {
    if (!tier.path.empty()) folders.push_back(tier.path);
  }
  return folders;
}

}  // namespace

Result<std::unique_ptr<NodeServer>> NodeServer::Make(NodeServerOptions options) {
  const std::uint64_t share_bytes = options.share_bytes;
  if (share_bytes > 0) HEADRACE_RETURN_IF_ERROR(CheckShare(options));
  options.memory_bytes -= options.memory_bytes > 0 ? share_bytes : 0;
  std::unique_ptr<NodeServer> node(new NodeServer(std::move(options)));
  HEADRACE_ASSIGN_OR_RETURN(node->opener_,
                            ThreadExecutor::Make({.threads = 1, .name = "headrace-open"}));
  if (node->options_.service) {
    const std::uint64_t limit = node->options_.memory_bytes;
    HEADRACE_ASSIGN_OR_RETURN(
        node->service_,
        ServiceMemory::Make(limit > 0 ? limit : MemoryLimitBytes() / 4, share_bytes));
  }
  IpcServerOptions server{.name = node->options_.name, .peers_max = 1024, .queue = kQueueLimits};
  HEADRACE_ASSIGN_OR_RETURN(node->server_, IpcServer::Make(std::move(server), *node));
  return node;
}

NodeServer::~NodeServer() {
  server_.reset();
  stop_.request_stop();
  jobs_.clear();
  opener_.reset();
}

void NodeServer::Run() {
  SetIdle();
  std::jthread watch([this](const std::stop_token& stop) { WatchIdle(stop); });
  server_->Run(stop_.get_token());
  watch.request_stop();
}

void NodeServer::WatchIdle(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    idle_changed_.NotifyAll();
  });
  const MonotonicClock clock;
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    if (idle_until_ns_ < 0 || owing_ > 0) {
      idle_changed_.Wait(mutex_);
      continue;
    }
    const std::int64_t left_ns = idle_until_ns_ - clock.NowNanos();
    if (left_ns <= 0) break;
    static_cast<void>(idle_changed_.WaitFor(mutex_, left_ns));
  }
  if (!stop.stop_requested()) stop_.request_stop();
}

void NodeServer::SetIdle() {
  ForgetFailures();
  bool idle = !options_.service;
  for (const auto& [id, connection] : connections_) idle = idle && connection.closed;
  const bool awaits = !had_client_ || !failures_.empty();
  const std::int64_t wait_ns = awaits ? options_.await_ns : 0;
  MutexLock lock(mutex_);
  idle_until_ns_ = idle ? MonotonicClock().NowNanos() + wait_ns : -1;
  idle_changed_.NotifyAll();
}

void NodeServer::OnConnected(const std::shared_ptr<IpcPeer>& peer) {
  connections_[peer->id()].client = std::make_shared<LaneClient>(peer);
  SetIdle();
}

void NodeServer::OnClosed(const std::shared_ptr<IpcPeer>& peer, const Status& /*why*/) {
  const auto found = connections_.find(peer->id());
  if (found == connections_.end()) return;
  LeaveJob(found->second);
  found->second.client->DropAll();
  connections_.erase(found);
  SetIdle();
}

Status NodeServer::OnMessage(const std::shared_ptr<IpcPeer>& peer, IpcMessage message) {
  const auto found = connections_.find(peer->id());
  if (found == connections_.end())
    return Status(StatusCode::kInternal, "a peer without a connection");
  Connection& connection = found->second;
  Result<ClientMessage> decoded = DecodeClientMessage(message.bytes, message.fds);
  Status status = decoded.status();
  if (status.ok()) {
    ClientMessage said = std::move(decoded).value();
    const bool hello = std::holds_alternative<ClientHello>(said);
    if (hello == connection.greeted ||
        (connection.closed && !std::holds_alternative<BatchNote>(said))) {
      const char* const why = !connection.greeted ? "it must say hello first"
                              : hello             ? "it has said hello already"
                                                  : "it has closed its session";
      status =
          OutOfOrder(*connection.client, fmt::format("a message of kind {}", said.index()), why);
    } else {
      status = std::visit([&](auto& each) { return OnMessage(connection, std::move(each)); }, said);
    }
  }
  if (!status.ok()) connection.client->Send(Refused{.status = status});
  return status;
}

Status NodeServer::OnMessage(Connection& connection, const ClientHello& hello) {
  if (hello.protocol != kNodeProtocol || hello.library != HEADRACE_VERSION) {
    return FailedPrecondition(
        "the node process is headrace {} (protocol {}), the rank's headrace {} (protocol {}): use "
        "one version for both",
        HEADRACE_VERSION, kNodeProtocol, hello.library, hello.protocol);
  }
  connection.greeted = true;
  had_client_ = true;
  return Status();
}

Status NodeServer::OnMessage(Connection& connection, OpenSession open) {
  if (!connection.job.empty() || open.job.empty()) {
    return OutOfOrder(
        *connection.client, "the opening of job '" + open.job + "'",
        open.job.empty() ? "the job needs a name" : "it has opened job '" + connection.job + "'");
  }
  HEADRACE_RETURN_IF_ERROR(FailureFor(connection, open));
  auto found = jobs_.find(open.job);
  if (found == jobs_.end() && HasToWait(open)) {
    connection.delayed = std::move(open);
    return Status();
  }
  if (found == jobs_.end()) {
    const std::uint64_t number = ++jobs_made_;
    const auto admit = [this, number, name = open.job](std::uint64_t bytes) {
      return Admit(number, name, bytes);
    };
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<HostedJob> job,
                              HostedJob::Make(open, admit, service_, stop_.get_token()));
    Hosted hosted{.job = std::move(job), .number = number, .folders = FoldersOf(open)};
    found = jobs_.emplace(open.job, std::move(hosted)).first;
  }
  ++found->second.clients;
  connection.job = open.job;
  opener_->Submit(
      0, [job = found->second.job, client = connection.client, open = std::move(open)]() mutable {
        job->Open(std::move(client), std::move(open));
      });
  return Status();
}

Status NodeServer::FailureFor(const Connection& connection, const OpenSession& open) {
  ForgetFailures();
  const std::int64_t now_ns = MonotonicClock().NowNanos();
  const auto found = failures_.find(open.job);
  if (found == failures_.end()) return Status();
  HostedJob::Failure& failure = found->second;
  const std::optional<std::int64_t> age_ns = ProcessAgeNs(connection.client->pid());
  Status why = failure.why;
  if (age_ns.has_value() && *age_ns < now_ns - failure.at_ns) why = Status();
  failure.untold.erase(open.local_rank);
  if (why.ok() || failure.untold.empty()) failures_.erase(found);
  return why;
}

void NodeServer::ForgetFailures() {
  const std::int64_t now_ns = MonotonicClock().NowNanos();
  std::erase_if(failures_,
                [&](const auto& each) { return now_ns - each.second.at_ns >= options_.await_ns; });
}

bool NodeServer::HasToWait(const OpenSession& open) const {
  const std::vector<std::string> wanted = FoldersOf(open);
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& each) {
    const Hosted& hosted = each.second;
    return hosted.ending &&
           std::find_first_of(hosted.folders.begin(), hosted.folders.end(), wanted.begin(),
                              wanted.end()) != hosted.folders.end();
  });
}

void NodeServer::OpenDelayed() {
  for (auto& [id, connection] : connections_) {
    if (!connection.delayed.has_value()) continue;
    OpenSession open = *std::exchange(connection.delayed, std::nullopt);
    const Status status = OnMessage(connection, std::move(open));
    if (!status.ok()) connection.client->Send(Refused{.status = status});
  }
}

template <typename Request>
Status NodeServer::OnMessage(Connection& connection, Request request) {
  const auto found = jobs_.find(connection.job);
  if (found == jobs_.end()) {
    return OutOfOrder(*connection.client, "a request", "it must open a job first");
  }
  found->second.job->Do(connection.client, std::move(request));
  return Status();
}

Status NodeServer::OnMessage(Connection& connection, const BatchNote& note) {
  if (connection.closed) {  // What its consumer held on to.
    for (const std::uint64_t number : note.let_go) connection.client->LetGo(number);
    return Status();
  }
  const auto found = jobs_.find(connection.job);
  if (found == jobs_.end()) {
    return OutOfOrder(*connection.client, "a note of batches", "it must open a job first");
  }
  found->second.job->Note(connection.client, note);
  return Status();
}

Status NodeServer::OnMessage(Connection& connection, const CloseSession& /*close*/) {
  LeaveJob(connection);
  connection.closed = true;
  connection.client->Send(RunEnded{});  // Of no run: the job is left.
  SetIdle();
  return Status();
}

void NodeServer::LeaveJob(Connection& connection) {
  const auto found = jobs_.find(connection.job);
  connection.job.clear();
  connection.delayed.reset();
  if (found == jobs_.end()) return;
  --found->second.clients;
  found->second.ending = true;
  // Behind the client's opening, which may not have begun.
  opener_->Submit(0, [job = found->second.job, client = connection.client] { job->Close(client); });
  Reap(found->first);
  OpenDelayed();
}

void NodeServer::Reap(const std::string& name) {
  const auto found = jobs_.find(name);
  if (found->second.clients > 0) return;
  if (std::optional<HostedJob::Failure> failure = found->second.job->failure()) {
    failures_.insert_or_assign(found->first, *std::move(failure));
  }
  const std::uint64_t number = found->second.number;
  std::shared_ptr<HostedJob> job = std::move(found->second.job);
  jobs_.erase(found);
  const bool owes = job->owes();
  if (owes) {
    MutexLock lock(mutex_);
    ++owing_;
  }
  auto end = [this, number, job = std::move(job), owes]() mutable {
    job.reset();  // Waits for its reads, and for nodes that are behind.
    MutexLock lock(mutex_);
    admitted_.erase(number);
    owing_ -= owes ? 1 : 0;
    idle_changed_.NotifyAll();
  };
  if (!owes) {
    opener_->Submit(0, std::move(end));
  } else {  // Behind what the opener has to do with it.
    opener_->Submit(0,
                    [this, end = std::move(end)]() mutable { ending_jobs_.Run(std::move(end)); });
  }
}

Result<std::uint64_t> NodeServer::Admit(std::uint64_t number, const std::string& job,
                                        std::uint64_t bytes) {
  MutexLock lock(mutex_);
  std::uint64_t used = 0;
  for (const auto& [each, taken] : admitted_) used += taken;
  if (options_.memory_bytes > 0 &&
      bytes > options_.memory_bytes - std::min(used, options_.memory_bytes)) {
    return ResourceExhausted(
        "job '{}' takes {} of memory: the node service has {}, of which {} jobs have {}; lower "
        "memory= or tiers=, or give the service more (--memory)",
        job, FormatBytes(bytes), FormatBytes(options_.memory_bytes), admitted_.size(),
        FormatBytes(used));
  }
  admitted_.emplace(number, bytes);
  if (options_.memory_bytes == 0) return std::numeric_limits<std::uint64_t>::max();
  return options_.memory_bytes - used - bytes;
}

}  // namespace headrace
