#include "node/server/hosted_job.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "headrace/index.h"
#include "loader/config/resolved_order.h"
#include "loader/session/retained_tiers.h"
#include "loader/session/session_reports.h"
#include "node/server/job_nodes.h"
#include "node/server/open_request.h"

namespace headrace {
namespace {

// Longest time that the job's thread waits at once for the end of the previous run.
constexpr std::int64_t kStopSliceNs = 20 * kNsPerMs;

}  // namespace

Result<std::unique_ptr<HostedJob>> HostedJob::Make(const OpenSession& first, Admit admit,
                                                   ServiceMemory service, std::stop_token hurry) {
  HEADRACE_RETURN_IF_ERROR(CheckOpen(first));
  HEADRACE_ASSIGN_OR_RETURN(auto thread,
                            ThreadExecutor::Make({.threads = 1, .name = "headrace-job"}));
  std::unique_ptr<HostedJob> job(
      new HostedJob(first, std::move(admit), std::move(service), std::move(hurry)));
  job->thread_ = std::move(thread);
  return job;
}

HostedJob::~HostedJob() { ending_ = true; }

void HostedJob::Post(std::function<void()> work) { thread_->Submit(0, std::move(work)); }

void HostedJob::Open(std::shared_ptr<LaneClient> client, OpenSession open) {
  Post([this, client = std::move(client), open = std::move(open)] { DoOpen(client, open); });
}

void HostedJob::Do(std::shared_ptr<LaneClient> client, Request request) {
  const bool interrupts = std::holds_alternative<StopRun>(request);
  if (interrupts) ++interrupts_;
  Post([this, interrupts, client = std::move(client), request = std::move(request)]() mutable {
    if (interrupts) --interrupts_;
    std::optional<std::uint32_t> local_rank;
    {
      MutexLock lock(mutex_);
      local_rank = LocalRankOf(ranks_, *client);
    }
    if (local_rank.has_value()) Answer(client, *local_rank, request);
  });
}

void HostedJob::Close(std::shared_ptr<LaneClient> client) {
  ++interrupts_;
  Post([this, client = std::move(client)] {
    --interrupts_;
    DoClose(client);
  });
}

std::optional<HostedJob::Failure> HostedJob::failure() const {
  MutexLock lock(mutex_);
  if (failed_.ok()) return std::nullopt;
  Failure failure{.why = failed_, .at_ns = failed_at_ns_};
  for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    if (!ranks_[local_rank].answered) failure.untold.insert(local_rank);
  }
  return failure.untold.empty() ? std::nullopt : std::optional(std::move(failure));
}

Status HostedJob::OpenFirst(const OpenSession& open, int pid) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Index> index, Index::Open(open.index_path));
  if (index->fingerprint() != open.fingerprint) {
    return FailedPrecondition(
        "opening index {}: the node process finds one of other files than rank {} had opened: it "
        "was replaced meanwhile; start again",
        open.index_path, open.process);
  }
  LoaderOptions options = open.options;
  options.job.rank -= open.lane;
  options.job.ranks = open.lanes;
  options.shared_batches = true;
  NumaRequest numa;  // Where the others run is not known yet.
  numa.lane_cpus.resize(open.lanes);
  numa.lane_cpus[open.lane] = CpusOfProcess(pid);
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t left, admit_(config.memory_bytes()));
  batches_max_ = config.budget.batches_max;
  const NodeOptions& resolved = config.options;
  if (resolved.nodes.has_value() && resolved.job.world_size > open.lanes &&
      (!resolved.tiers.tiers.empty() || resolved.job.exchange)) {
    HEADRACE_ASSIGN_OR_RETURN(nodes_,
                              JobNodes::Make(
                                  open, [this] { return !ending_ && interrupts_ == 0; }, hurry_));
    nodes_->SetParameters(config.order->parameters());
  }
  HEADRACE_ASSIGN_OR_RETURN(
      session_, Session::Open(std::move(index), std::move(config), service_, numa, nodes_));
  exchanges_ = session_->config().options.job.exchange;
  // What jobs need comes before what is retained for others; its own it has taken by now.
  if (service_.tiers != nullptr) service_.tiers->ShrinkTo(left);
  return Status();
}

Status HostedJob::Join(const std::shared_ptr<LaneClient>& client, const OpenSession& open) {
  HEADRACE_RETURN_IF_ERROR(CheckOpen(open));
  HEADRACE_RETURN_IF_ERROR(CompareOpen(first_, open));
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return failed_;
  }
  if (session_ == nullptr) HEADRACE_RETURN_IF_ERROR(OpenFirst(open, client->pid()));
  MutexLock lock(mutex_);
  LocalRank& local_rank = ranks_[open.local_rank];
  if (start_.here(open.local_rank)) {
    return FailedPrecondition(
        "process {} joins job '{}' as local rank {}: process {} is that already; give each process "
        "its own LOCAL_RANK",
        client->pid(), open.job, open.local_rank, local_rank.client->pid());
  }
  const auto on_lane = std::ranges::count_if(ranks_, [&](const LocalRank& each) {
    return &each != &local_rank && each.client != nullptr && each.lane == open.lane;
  });
  if (on_lane >= open.local_ranks / open.lanes) {
    return FailedPrecondition(
        "process {} joins job '{}' at position {} of {} on this node: {} ranks are there already, "
        "as many as each position may have; give each process its own LOCAL_RANK",
        client->pid(), open.job, open.lane, open.lanes, on_lane);
  }
  local_rank = LocalRank{.client = client, .lane = open.lane};
  start_.Join(open.local_rank);
  return Status();
}

void HostedJob::DoOpen(const std::shared_ptr<LaneClient>& client, const OpenSession& open) {
  const Status joined = Join(client, open);
  {
    MutexLock lock(mutex_);
    if (open.local_rank < ranks_.size()) ranks_[open.local_rank].answered = true;
    if (failed_.ok() && !joined.ok()) {
      failed_ = joined;
      failed_at_ns_ = MonotonicClock().NowNanos();
    }
  }
  if (!joined.ok()) {
    client->Send(Refused{.status = joined});
    FailAll(joined);
    return;
  }
  client->Send(SessionOpened{.facts = session_->facts(),
                             .batches_max = batches_max_,
                             .peer_address = nodes_ == nullptr ? "" : nodes_->address()});
}

void HostedJob::Answer(const std::shared_ptr<LaneClient>& client, std::uint32_t local_rank,
                       Request& request) {
  std::uint32_t lane = 0;
  {
    MutexLock lock(mutex_);
    lane = ranks_[local_rank].lane;
  }
  if (auto* start = std::get_if<StartRun>(&request)) {
    DoStart(local_rank, {.start = start->start, .position = start->position});
  } else if (auto* list = std::get_if<StartListRun>(&request)) {
    const Position position{.epoch = list->list.epoch, .step = list->list.first_step};
    DoStart(local_rank,
            {.start = list->start, .position = position, .list = std::move(list->list)});
  } else if (std::holds_alternative<StopRun>(request)) {
    LeaveRun(local_rank);
  } else if (auto* connect = std::get_if<ConnectNodes>(&request)) {
    Status status;
    if (nodes_ != nullptr) {
      status = nodes_->Connect(std::move(connect->group));
    } else if (!first_.options.nodes.has_value()) {
      status = FailedPrecondition(
          "connecting nodes: the loader was opened without any; open it with nodes");
    }  // Else all that it reads is in the index: there is nothing to give each other.
    client->Send(NodesConnected{.call = connect->call, .status = std::move(status)});
  } else if (const auto* still = std::get_if<StillWaiting>(&request)) {
    DoStillWaiting(local_rank, *still);
  } else if (const auto* stats = std::get_if<AskStats>(&request)) {
    Result<LoaderStats> got = session_->reports().stats(lane);
    StatsReply reply{.call = stats->call, .status = got.status()};
    if (got.ok()) reply.stats = std::move(got).value();
    {
      MutexLock lock(mutex_);
      reply.stats.awaited = start_.Awaited();
    }
    reply.decode_times = session_->reports().decode_times();
    client->Send(std::move(reply));
  } else if (const auto* steps = std::get_if<AskSteps>(&request)) {
    Result<std::vector<StepTime>> got = session_->reports().step_times();
    StepsReply reply{.call = steps->call, .status = got.status()};
    if (got.ok()) reply.steps = std::move(got).value();
    client->Send(std::move(reply));
  } else {
    const auto* rows = std::get_if<AskRows>(&request);
    const auto* rows_of = std::get_if<AskRowsOf>(&request);
    Result<std::vector<PlannedRow>> got = rows != nullptr
                                              ? session_->reports().Explain(rows->position, lane)
                                              : session_->reports().ExplainRows(rows_of->samples);
    RowsReply reply{.call = rows != nullptr ? rows->call : rows_of->call, .status = got.status()};
    if (got.ok()) reply.rows = std::move(got).value();
    client->Send(std::move(reply));
  }
}

void HostedJob::DoStart(std::uint32_t local_rank, CollectiveStart::Wish wish) {
  LeaveRun(local_rank);
  const std::uint64_t start = wish.start;
  Status failed;
  std::shared_ptr<LaneClient> client;
  {
    MutexLock lock(mutex_);
    failed = failed_.ok() ? start_.Ask(local_rank, std::move(wish)) : failed_;
    client = ranks_[local_rank].client;
    if (failed.ok()) ranks_[local_rank].start = start;
  }
  if (!failed.ok()) {
    client->Send(RunEnded{.start = start, .status = failed});
    return;
  }
  BeginIfAllAsked();
}

// What was sent and not taken is the node's again: the client drops it when it finds it.
void HostedJob::LeaveRun(std::uint32_t local_rank) {
  std::shared_ptr<SessionRun> run;
  std::shared_ptr<LaneClient> client;
  std::uint32_t lane = 0;
  bool last_of_lane = false;
  bool last = false;
  SharedTakes::Batches taken;  // by all who stay in the lane
  {
    MutexLock lock(mutex_);
    run = std::exchange(ranks_[local_rank].run, nullptr);
    start_.Withdraw(local_rank);
    client = ranks_[local_rank].client;
    lane = ranks_[local_rank].lane;
    last = std::none_of(ranks_.begin(), ranks_.end(),
                        [](const LocalRank& each) { return each.run != nullptr; });
    if (run != nullptr) {
      const SharedTakes::Ranks left = RanksInRun(ranks_, lane, *run);
      last_of_lane = left.empty();
      taken = takes_[lane].Left(left);
    }
  }
  if (run != nullptr && last_of_lane) {
    run->Leave(lane);
    // Nobody needs its reads. It goes on while other nodes need what it sends.
    if (last) static_cast<void>(session_->Stop(0));
  } else if (run != nullptr) {
    sinks_[lane]->Remove(*client);
    const std::int64_t now_ns = MonotonicClock().NowNanos();
    for (const auto& batch : taken) run->OnTaken(lane, *batch, now_ns);
  }
  if (client != nullptr) client->DropUntaken();
}

void HostedJob::BeginIfAllAsked() {
  std::optional<CollectiveStart::Wish> wish;
  Status status;
  {
    MutexLock lock(mutex_);
    Result<std::optional<CollectiveStart::Wish>> agreed = start_.Agreed();
    status = agreed.status();
    if (status.ok()) wish = std::move(agreed).value();
    if (status.ok() && !wish.has_value()) return;
  }
  // Its reads may stay in flight for long: requests are answered meanwhile.
  if (status.ok() && !session_->Stop(kStopSliceNs)) {
    if (!ending_) Post([this] { BeginIfAllAsked(); });
    return;
  }
  if (status.ok()) status = Begin(*wish);
  if (!status.ok()) EndWait(status);
}

void HostedJob::Tell(const Told& told, const Status& why) {
  for (const auto& [client, start] : told) client->Send(RunEnded{.start = start, .status = why});
}

void HostedJob::EndWait(const Status& why) {
  Told told;
  {
    MutexLock lock(mutex_);
    for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
      if (!start_.wish(local_rank).has_value()) continue;
      start_.Withdraw(local_rank);
      told.emplace_back(ranks_[local_rank].client, ranks_[local_rank].start);
    }
  }
  Tell(told, why);
}

void HostedJob::DoStillWaiting(std::uint32_t local_rank, const StillWaiting& still) {
  Status over;
  {
    MutexLock lock(mutex_);
    over = start_.GiveUp(local_rank, still.start, still.waited_ns);
  }
  if (!over.ok()) EndWait(over);
}

Status HostedJob::Begin(const CollectiveStart::Wish& wish) {
  std::vector<std::vector<LaneSink::Receiver>> receivers(first_.lanes);
  {
    MutexLock lock(mutex_);
    for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
      if (!start_.wish(local_rank).has_value()) continue;
      const LocalRank& asked = ranks_[local_rank];
      receivers[asked.lane].push_back({.client = asked.client, .start = asked.start});
    }
  }
  std::vector<std::unique_ptr<LaneSink>> sinks;
  std::vector<BatchSink*> pointers;
  std::vector<bool> here;
  for (std::vector<LaneSink::Receiver>& each : receivers) {
    here.push_back(!each.empty());
    sinks.push_back(std::make_unique<LaneSink>(std::move(each), session_->facts().schema));
    pointers.push_back(sinks.back().get());
  }
  std::shared_ptr<SessionRun> run;
  if (wish.list.has_value()) {
    HEADRACE_ASSIGN_OR_RETURN(run, session_->StartList(*wish.list, pointers.front()));
  } else {
    HEADRACE_ASSIGN_OR_RETURN(run, session_->Start(wish.position, pointers));
  }
  sinks_ = std::move(sinks);  // The run that used those before has ended.
  {
    MutexLock lock(mutex_);
    for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
      if (start_.wish(local_rank).has_value()) ranks_[local_rank].run = run;
    }
    for (SharedTakes& each : takes_) each.Clear();
    start_.Begin(wish.position);
  }
  for (std::uint32_t lane = 0; lane < here.size(); ++lane) {
    if (here[lane]) {
      sinks_[lane]->Release();
    } else {
      run->Leave(lane);
    }
  }
  return Status();
}

void HostedJob::FailAll(const Status& why) {
  Told told;
  std::vector<std::pair<std::shared_ptr<SessionRun>, std::uint32_t>> left;  // and their lanes
  {
    MutexLock lock(mutex_);
    for (std::uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
      start_.Withdraw(local_rank);
      if (ranks_[local_rank].run != nullptr) {
        left.emplace_back(std::exchange(ranks_[local_rank].run, nullptr), ranks_[local_rank].lane);
      }
      if (start_.here(local_rank))
        told.emplace_back(ranks_[local_rank].client, ranks_[local_rank].start);
    }
    for (SharedTakes& each : takes_) each.Clear();
  }
  for (const auto& [run, lane] : left) run->Leave(lane);
  if (session_ != nullptr) static_cast<void>(session_->Stop(0));
  Tell(told, why);
}

Status HostedJob::Took(std::uint32_t local_rank, SessionRun& run,
                       const std::shared_ptr<const Batch>& batch, std::int64_t taken_ns) {
  std::uint32_t lane = 0;
  SharedTakes::Batches taken;
  {
    MutexLock lock(mutex_);
    lane = ranks_[local_rank].lane;
    taken = takes_[lane].Took(local_rank, batch, RanksInRun(ranks_, lane, run));
  }
  for (const auto& each : taken) run.OnTaken(lane, *each, taken_ns);
  MutexLock lock(mutex_);
  return start_.Took(local_rank, {.epoch = batch->epoch, .step = batch->step + 1},
                     {.steps_per_epoch = session_->facts().steps_per_epoch,
                      .batches_behind = first_.options.batches_behind});
}

void HostedJob::Note(const std::shared_ptr<LaneClient>& client, const BatchNote& note) {
  std::shared_ptr<SessionRun> run;
  std::optional<std::uint32_t> local_rank;
  {
    MutexLock lock(mutex_);
    local_rank = LocalRankOf(ranks_, *client);
    if (local_rank.has_value()) run = ranks_[*local_rank].run;
  }
  Status stuck;
  const std::int64_t now_ns = MonotonicClock().NowNanos();
  for (const TakenNote& taken : note.taken) {
    const std::shared_ptr<const Batch> batch = client->Take(taken.number);
    if (batch == nullptr || run == nullptr) continue;
    // Whatever the rank says: not before it was there, nor in the future.
    const std::int64_t taken_ns =
        std::clamp(taken.at_ns, std::min(batch->times.handed_ns, now_ns), now_ns);
    const Status goes_on = Took(*local_rank, *run, batch, taken_ns);
    if (stuck.ok()) stuck = goes_on;
  }
  for (const std::uint64_t number : note.let_go) client->LetGo(number);
  if (note.waiting && run != nullptr) {
    std::optional<std::uint32_t> waits;  // unset: another rank of the lane is behind
    {
      MutexLock lock(mutex_);
      const std::uint32_t lane = ranks_[*local_rank].lane;
      if (!takes_[lane].waits()) waits = lane;
    }
    if (waits.has_value()) run->OnWaiting(*waits);
  }
  if (local_rank.has_value() && !note.taken.empty()) TellOfTiers(client, *local_rank);
  if (stuck.ok() && run != nullptr && nodes_ != nullptr) stuck = nodes_->TakeDifference();
  if (!stuck.ok()) Post([this, stuck] { FailAll(stuck); });
}

void HostedJob::TellOfTiers(const std::shared_ptr<LaneClient>& client, std::uint32_t local_rank) {
  std::vector<NamedTierStats> tiers = session_->reports().tier_stats();
  const auto failed = static_cast<std::size_t>(std::count_if(
      tiers.begin(), tiers.end(), [](const NamedTierStats& tier) { return tier.stats.degraded; }));
  {
    MutexLock lock(mutex_);
    if (ranks_[local_rank].tiers_in_trouble == failed) return;
    ranks_[local_rank].tiers_in_trouble = failed;
  }
  client->Send(TierTrouble{.tiers = std::move(tiers)});
}

void HostedJob::DoClose(const std::shared_ptr<LaneClient>& client) {
  std::optional<std::uint32_t> local_rank;
  {
    MutexLock lock(mutex_);
    local_rank = LocalRankOf(ranks_, *client);
  }
  if (!local_rank.has_value()) return;
  LeaveRun(*local_rank);
  {
    MutexLock lock(mutex_);
    start_.Leave(*local_rank);
    ranks_[*local_rank].client.reset();
  }
  BeginIfAllAsked();
}

}  // namespace headrace
