#include "node/client/remote_loader.h"

#include <unistd.h>

#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "engine/batch/batch_memory.h"

namespace headrace {
namespace {

constexpr std::int64_t kAskEveryNs = 50'000'000;
constexpr std::int64_t kLookEveryNs = NodeState::kLookEveryNs;
// How long a node may take to hear that a client goes.
constexpr std::int64_t kGoodbyeNs = 1'000'000'000;

// Of the batches that the node may have ready, how many it may not hear of for a while: one in so
// many.
constexpr std::uint32_t kBatchesANote = 4;

// How long the node may take to answer what it counts, and what it has to plan for.
constexpr std::int64_t kCountsNs = 60'000'000'000;
constexpr std::int64_t kPlansNs = 600'000'000'000;
// Calls that it has not answered, given up or not: what they take of the connection is bounded.
constexpr std::size_t kCallsMax = 16;

// Tells the node when nobody looks at a batch any more.
class Lease {
 public:
  Lease(std::shared_ptr<RemoteLink> link, std::uint64_t number)
      : link_(std::move(link)), number_(number) {}
  ~Lease() { link_->LetGo(number_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  const std::shared_ptr<RemoteLink> link_;
  const std::uint64_t number_;
};

}  // namespace

Result<std::unique_ptr<RemoteLoader>> RemoteLoader::Open(const NodeAddress& address,
                                                         LoaderOptions options,
                                                         std::function<bool()> keep_waiting,
                                                         std::shared_ptr<const Clock> clock) {
  const NodeAddress::Lanes lanes = address.lanes.value_or(NodeAddress::Lanes{
      .process = options.job.rank, .lane = address.local_rank, .lanes = address.local_ranks});
  HEADRACE_ASSIGN_OR_RETURN(auto connection, IpcConnection::Connect(address.socket));
  auto link = std::make_shared<RemoteLink>(std::move(connection), address.job);
  std::unique_ptr<RemoteLoader> loader(
      new RemoteLoader(link, address, std::move(keep_waiting), std::move(clock)));
  Status said = link->Say(ClientHello{.library = HEADRACE_VERSION,
                                      .pid = static_cast<std::uint64_t>(getpid()),
                                      .rank = lanes.process});
  if (said.ok()) {
    said = link->Say(OpenSession{.job = address.job,
                                 .process = lanes.process,
                                 .local_rank = address.local_rank,
                                 .local_ranks = address.local_ranks,
                                 .lane = lanes.lane,
                                 .lanes = lanes.lanes,
                                 .index_path = address.index_path,
                                 .fingerprint = address.fingerprint,
                                 .options = std::move(options)});
  }
  // What it did not take it may have refused: the answer says why.
  if (!said.ok() && said.code() != StatusCode::kUnavailable) return said;
  MutexLock lock(loader->mutex_);
  HEADRACE_RETURN_IF_ERROR(loader->WaitForAnswer(
      "opening a loader",
      [&]() HEADRACE_LOCKS_REQUIRED(loader->mutex_) { return loader->is_open_; },
      address.start_timeout_ns));
  return loader;
}

RemoteLoader::~RemoteLoader() {
  if (link_->forked()) return;
  MutexLock lock(mutex_);
  run_ = Run();
  // The node process has gone, never had this loader, or does not read.
  if (!is_open_ || !link_->Say(CloseSession{}, abandoned_ ? 0 : kGoodbyeNs).ok()) return;
  // What is opened after this finds the node without this one: another connection may be read
  // first.
  const auto heard = [&]() HEADRACE_LOCKS_REQUIRED(mutex_) { return run_.end.has_value(); };
  static_cast<void>(WaitUntil(heard, abandoned_ ? 0 : kGoodbyeNs));
}

Status RemoteLoader::CheckProcess() const {
  if (!link_->forked()) return Status();
  return FailedPrecondition(
      "a loader made in another process is used in its forked child {}: its connection is the "
      "parent's; make the loader in the child",
      getpid());
}

Status RemoteLoader::Start(Position position) { return Begin(StartRun{.position = position}); }

Status RemoteLoader::StartList(ListOrderOptions list) {
  return Begin(StartListRun{.list = std::move(list)});
}

template <typename Message>
Status RemoteLoader::Begin(Message message) {
  HEADRACE_RETURN_IF_ERROR(CheckProcess());
  MutexLock lock(mutex_);
  HEADRACE_RETURN_IF_ERROR(broken_);
  message.start = ++last_start_;
  run_ = {.start = message.start, .begins = true};
  const Status said = link_->Say(std::move(message));
  received_.NotifyAll();  // Who waits for the run before.
  return said.ok() ? said : link_->Explain(said);
}

bool RemoteLoader::Stop(std::int64_t /*timeout_ns*/) {
  if (link_->forked()) return true;
  MutexLock lock(mutex_);
  if (run_.start == 0) return true;
  run_ = Run();
  static_cast<void>(
      link_->Say(StopRun{}, kGoodbyeNs));  // Fails if the node has gone: all is stopped then.
  received_.NotifyAll();
  return true;
}

// Sends that a batch is taken under the lock: Stop() and Start() come before it, and it is dropped,
// or after it, and it is the consumer's.
Result<TakenBatch> RemoteLoader::Next(std::int64_t timeout_ns) {
  HEADRACE_RETURN_IF_ERROR(CheckProcess());
  MutexLock lock(mutex_);
  const std::uint64_t start = run_.start;
  if (start == 0) {
    HEADRACE_RETURN_IF_ERROR(broken_);
    return Status(StatusCode::kFailedPrecondition,
                  "taking a batch: no run was started; iterate the loader");
  }
  const auto over = [&]() HEADRACE_LOCKS_REQUIRED(mutex_) {
    return !run_.ready.empty() || run_.end.has_value() || run_.start != start;
  };
  if (!over()) HEADRACE_RETURN_IF_ERROR(WaitUntil(over, 0).status());
  if (!over()) {
    if (!std::exchange(run_.told_waiting, true)) {
      static_cast<void>(link_->NoteWaiting());  // Fails if the node has gone: see below.
    }
    for (std::int64_t left_ns = timeout_ns; !over();) {
      const bool is_last = left_ns >= 0 && left_ns <= kLookEveryNs;
      HEADRACE_RETURN_IF_ERROR(WaitInRun(over, is_last ? left_ns : kLookEveryNs));
      if (!over()) {
        HEADRACE_RETURN_IF_ERROR(
            node_state_.Check(*link_, clock_->NowNanos(), address_.start_timeout_ns));
      }
      if (is_last) break;
      if (left_ns >= 0) left_ns -= kLookEveryNs;
    }
  }
  if (run_.start != start) return Status(StatusCode::kCancelled, "the run was stopped");
  if (!run_.ready.empty()) {
    // First: what cannot be copied is not taken.
    if (address_.shares_batches()) HEADRACE_RETURN_IF_ERROR(OwnRows(*run_.ready.front().second));
    auto [number, batch] = std::move(run_.ready.front());
    run_.ready.pop_front();
    run_.told_waiting = run_.begins = false;
    node_state_ = {};
    link_->NoteTaken(number);
    auto lease = std::make_shared<const Lease>(link_, number);
    if (!address_.shares_batches()) batch->memory->lease = std::move(lease);  // Else it goes now.
    return TakenBatch{.batch = std::move(batch)};
  }
  if (!run_.end.has_value()) return TakenBatch{};
  if (!run_.end->ok()) return *run_.end;
  return TakenBatch{.ended = true};
}

Result<bool> RemoteLoader::WaitUntil(const std::function<bool()>& done,
                                     std::int64_t timeout_ns) const {
  const MonotonicClock clock;
  const std::int64_t begin_ns = clock.NowNanos();
  bool looked = false;
  while (!done()) {
    HEADRACE_RETURN_IF_ERROR(broken_);
    std::int64_t left_ns = timeout_ns;
    if (timeout_ns >= 0) {
      left_ns = std::max<std::int64_t>(0, timeout_ns - (clock.NowNanos() - begin_ns));
      if (left_ns == 0 && std::exchange(looked, true)) return false;
    }
    if (!receiving_) {
      Receive(left_ns);
    } else if (left_ns < 0) {
      received_.Wait(mutex_);
    } else {
      static_cast<void>(received_.WaitFor(mutex_, left_ns));
    }
  }
  return true;
}

Status RemoteLoader::WaitForAnswer(const char* asked, const std::function<bool()>& done,
                                   std::int64_t timeout_ns) const {
  const std::int64_t begin_ns = clock_->NowNanos();
  while (true) {
    HEADRACE_ASSIGN_OR_RETURN(const bool came, WaitUntil(done, kAskEveryNs));
    if (came) return Status();
    mutex_.Unlock();  // Who is asked may wait for locks of its own.
    const bool goes_on = keep_waiting_();
    mutex_.Lock();
    if (goes_on && done()) return Status();
    const std::string what = std::string(asked) + " by " + link_->Node();
    if (!goes_on) return Status(StatusCode::kCancelled, what + ": interrupted");
    const std::int64_t waited_ns = clock_->NowNanos() - begin_ns;
    if (waited_ns < timeout_ns) continue;
    return Status(StatusCode::kDeadlineExceeded,
                  fmt::format("{}: no answer in {} s: see whether it is stopped (ps -o stat= -p "
                              "{}); it may be planning for another rank: try again",
                              what, waited_ns / kNsPerSecond, link_->node_pid()));
  }
}

Status RemoteLoader::WaitInRun(const std::function<bool()>& over, std::int64_t timeout_ns) {
  if (!run_.begins) return WaitUntil(over, timeout_ns).status();
  const std::int64_t now_ns = clock_->NowNanos();
  if (!run_.waits_since_ns.has_value()) run_.waits_since_ns = now_ns;
  const std::int64_t left_ns =
      std::max<std::int64_t>(0, address_.start_timeout_ns - (now_ns - *run_.waits_since_ns));
  if (timeout_ns >= 0 && timeout_ns < left_ns) return WaitUntil(over, timeout_ns).status();
  HEADRACE_ASSIGN_OR_RETURN(const bool came, WaitUntil(over, left_ns));
  if (came) return Status();
  run_.begins = false;
  const StillWaiting still{.start = run_.start,
                           .waited_ns = clock_->NowNanos() - *run_.waits_since_ns};
  static_cast<void>(link_->Say(still));  // Fails if the node has gone: the wait says so.
  return WaitUntil(over, timeout_ns < 0 ? -1 : timeout_ns - left_ns).status();
}

void RemoteLoader::Receive(std::int64_t timeout_ns) const {
  receiving_ = true;
  mutex_.Unlock();
  Result<std::optional<IpcMessage>> received = link_->Receive(timeout_ns);
  Status status = received.ok() ? Status() : link_->Explain(received.status());
  NodeMessage said;
  if (status.ok() && received.value().has_value()) {
    Result<NodeMessage> decoded = DecodeNodeMessage(received.value()->bytes);
    status = decoded.status();
    if (status.ok()) said = std::move(decoded).value();
  }
  mutex_.Lock();
  receiving_ = false;
  if (status.ok() && received.value().has_value()) {
    status = OnMessage(*received.value(), std::move(said));
  }
  if (!status.ok() && broken_.ok()) broken_ = std::move(status);
  received_.NotifyAll();
}

Status RemoteLoader::OnMessage(IpcMessage& message, NodeMessage said) const {
  received_bytes_ += message.bytes.size();
  if (const auto* refused = std::get_if<Refused>(&said)) return On(*refused);
  if (auto* opened = std::get_if<SessionOpened>(&said)) return On(std::move(*opened));
  if (const auto* memory = std::get_if<NewMemory>(&said)) return mapper_.Add(*memory, message);
  if (auto* batch = std::get_if<BatchReady>(&said)) return On(std::move(*batch));
  if (auto* ended = std::get_if<RunEnded>(&said)) return On(std::move(*ended));
  if (auto* trouble = std::get_if<TierTrouble>(&said)) return On(std::move(*trouble));
  const auto* stats = std::get_if<StatsReply>(&said);
  const auto* steps = std::get_if<StepsReply>(&said);
  const auto* connected = std::get_if<NodesConnected>(&said);
  const std::uint64_t call = stats != nullptr       ? stats->call
                             : steps != nullptr     ? steps->call
                             : connected != nullptr ? connected->call
                                                    : std::get<RowsReply>(said).call;
  const auto found = calls_.find(call);
  if (found == calls_.end() || found->second.reply.has_value())
    return WrongMessage("an answer that nobody asked for");
  if (found->second.given_up) {
    calls_.erase(found);
  } else {
    found->second.reply = std::move(said);
  }
  return Status();
}

Status RemoteLoader::On(const Refused& refused) const {
  return refused.status.ok() ? WrongMessage("a refusal without a reason") : refused.status;
}

Status RemoteLoader::On(SessionOpened opened) const {
  if (std::exchange(is_open_, true)) return WrongMessage("the job was opened twice");
  facts_ = std::move(opened.facts);
  peer_address_ = std::move(opened.peer_address);
  link_->HoldNotes(opened.batches_max / kBatchesANote);
  return Status();
}

Status RemoteLoader::On(BatchReady ready) const {
  const std::uint64_t number = ready.number;
  const bool of_run = ready.start == run_.start;  // Else the run was left: the node has it back.
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<Batch> batch,
                            mapper_.Map(std::move(ready), facts_.schema));
  if (of_run) run_.ready.emplace_back(number, std::move(batch));
  return Status();
}

Status RemoteLoader::On(RunEnded ended) const {
  if (ended.start == run_.start) run_.end = std::move(ended.status);
  return Status();
}

Status RemoteLoader::On(TierTrouble trouble) const {
  tiers_ = std::move(trouble.tiers);
  return Status();
}

template <typename Reply, typename Ask>
Result<Reply> RemoteLoader::Call(const char* asked, Ask ask, std::int64_t timeout_ns) const {
  HEADRACE_RETURN_IF_ERROR(CheckProcess());
  MutexLock lock(mutex_);
  const std::uint64_t call = ++last_call_;
  ask.call = call;
  HEADRACE_RETURN_IF_ERROR(broken_);
  bool is_said = false;
  Status said;
  const auto done = [&]() HEADRACE_LOCKS_REQUIRED(mutex_) {
    if (!is_said && calls_.size() < kCallsMax) {
      is_said = true;
      calls_.emplace(call, Asked());
      said = link_->Say(std::move(ask));
    }
    return !said.ok() || (is_said && calls_.at(call).reply.has_value());
  };
  const Status waited = WaitForAnswer(asked, done, timeout_ns);
  if (!said.ok()) {
    calls_.erase(call);
    return link_->Explain(said);
  }
  if (!waited.ok()) {
    if (const auto found = calls_.find(call); found != calls_.end()) {
      found->second.given_up = true;
      if (found->second.reply.has_value()) calls_.erase(found);
    }
    return waited;
  }
  NodeMessage reply = *std::move(calls_.extract(call).mapped().reply);
  if (!std::holds_alternative<Reply>(reply)) return WrongMessage("an answer to another question");
  Reply answer = std::get<Reply>(std::move(reply));
  HEADRACE_RETURN_IF_ERROR(answer.status);
  return answer;
}

Status RemoteLoader::ConnectNodes(PeerGroup group) {
  return Call<NodesConnected>("connecting the nodes",
                              headrace::ConnectNodes{.group = std::move(group)}, kCountsNs)
      .status();
}

Result<std::vector<PlannedRow>> RemoteLoader::Explain(Position position) const {
  HEADRACE_ASSIGN_OR_RETURN(RowsReply reply,
                            Call<RowsReply>("explain()", AskRows{.position = position}, kPlansNs));
  return std::move(reply.rows);
}

Result<std::vector<PlannedRow>> RemoteLoader::ExplainRows(std::span<const SampleId> samples) const {
  HEADRACE_ASSIGN_OR_RETURN(
      RowsReply reply,
      Call<RowsReply>("explain()", AskRowsOf{.samples = {samples.begin(), samples.end()}},
                      kPlansNs));
  return std::move(reply.rows);
}

Result<LoaderStats> RemoteLoader::stats() const {
  HEADRACE_ASSIGN_OR_RETURN(StatsReply reply, Call<StatsReply>("stats()", AskStats{}, kCountsNs));
  MutexLock lock(mutex_);
  reply.stats.message_bytes = received_bytes_;
  return std::move(reply.stats);
}

Result<std::vector<PreprocessRow>> RemoteLoader::decode_times() const {
  HEADRACE_ASSIGN_OR_RETURN(StatsReply reply,
                            Call<StatsReply>("save_profile()", AskStats{}, kCountsNs));
  return std::move(reply.decode_times);
}

Result<std::vector<StepTime>> RemoteLoader::step_times() const {
  HEADRACE_ASSIGN_OR_RETURN(StepsReply reply, Call<StepsReply>("trace()", AskSteps{}, kCountsNs));
  return std::move(reply.steps);
}

std::vector<NamedTierStats> RemoteLoader::tier_stats() const {
  if (link_->forked()) return {};
  MutexLock lock(mutex_);
  return tiers_;
}

}  // namespace headrace
