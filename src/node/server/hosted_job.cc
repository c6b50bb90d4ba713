#include "node/server/hosted_job.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "index/index.h"
#include "loader/session/kept_tiers.h"
#include "node/server/open_request.h"

namespace headrace {
namespace {

// Longest time that the job's thread waits at once for the end of the previous run.
constexpr std::int64_t kStopSliceNs = 20 * kNsPerMs;

bool Before(const Position& a, const Position& b) {
  return std::tie(a.epoch, a.step) < std::tie(b.epoch, b.step);
}

std::string Shown(const Position& position) {
  return "epoch " + std::to_string(position.epoch) + " step " + std::to_string(position.step);
}

}  // namespace

Result<std::unique_ptr<HostedJob>> HostedJob::Make(const OpenJob& first, Admit admit,
                                                   std::shared_ptr<KeptTiers> kept) {
  HEADRACE_RETURN_IF_ERROR(CheckOpen(first));
  HEADRACE_ASSIGN_OR_RETURN(auto thread,
                            ThreadExecutor::Make({.threads = 1, .name = "headrace-job"}));
  std::unique_ptr<HostedJob> job(new HostedJob(first, std::move(admit), std::move(kept)));
  job->thread_ = std::move(thread);
  return job;
}

HostedJob::~HostedJob() { ending_ = true; }

void HostedJob::Post(std::function<void()> work) { thread_->Submit(0, std::move(work)); }

void HostedJob::Open(std::shared_ptr<LaneClient> client, OpenJob open) {
  Post([this, client = std::move(client), open = std::move(open)] { DoOpen(client, open); });
}

void HostedJob::Do(std::shared_ptr<LaneClient> client, Request request) {
  Post([this, client = std::move(client), request = std::move(request)]() mutable {
    std::optional<std::uint32_t> lane;
    {
      MutexLock lock(mutex_);
      lane = LaneOf(*client);
    }
    if (lane.has_value()) Answer(client, *lane, request);
  });
}

void HostedJob::Close(std::shared_ptr<LaneClient> client) {
  Post([this, client = std::move(client)] { DoClose(client); });
}

std::optional<std::uint32_t> HostedJob::LaneOf(const LaneClient& client) const {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].client.get() == &client) return lane;
  }
  return std::nullopt;
}

std::string HostedJob::Named(std::uint32_t lane) const {
  return "rank " + std::to_string(first_.options.job.rank - first_.local_rank + lane);
}

std::optional<HostedJob::Failure> HostedJob::failure() const {
  MutexLock lock(mutex_);
  if (failed_.ok()) return std::nullopt;
  Failure failure{.why = failed_, .at_ns = failed_at_ns_};
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (!lanes_[lane].answered) failure.untold.insert(lane);
  }
  return failure.untold.empty() ? std::nullopt : std::optional(std::move(failure));
}

Status HostedJob::OpenFirst(const OpenJob& open, int pid) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Index> index, Index::Open(open.index_path));
  if (index->fingerprint() != open.fingerprint) {
    return Status(StatusCode::kFailedPrecondition,
                  "opening index " + open.index_path + ": the node process finds one of other " +
                      "files than " + Named(open.local_rank) +
                      " had opened: it was replaced meanwhile; start again");
  }
  LoaderOptions options = open.options;
  options.job.rank -= open.local_rank;
  options.job.ranks = open.local_ranks;
  options.shared_batches = true;
  NumaRequest numa;  // Where the others run is not known yet.
  numa.lane_cpus.resize(open.local_ranks);
  numa.lane_cpus[open.local_rank] = CpusOfProcess(pid);
  std::uint64_t left = 0;
  const auto admit = [&](std::uint64_t bytes) -> Status {
    HEADRACE_ASSIGN_OR_RETURN(left, admit_(bytes));
    return Status();
  };
  HEADRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<NodeJob> job,
      NodeJob::Open(std::move(index), std::move(options), kept_, numa, admit));
  // What jobs need comes before what is kept for others; its own it has taken by now.
  if (kept_ != nullptr) kept_->ShrinkTo(left);
  HEADRACE_ASSIGN_OR_RETURN(const LoaderStats stats, job->stats(0));
  batches_ahead_ = stats.budget.batches_max;
  job_ = std::move(job);
  return Status();
}

Status HostedJob::Join(const std::shared_ptr<LaneClient>& client, const OpenJob& open) {
  HEADRACE_RETURN_IF_ERROR(CheckOpen(open));
  HEADRACE_RETURN_IF_ERROR(CompareOpen(first_, open));
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return failed_;
  }
  if (job_ == nullptr) HEADRACE_RETURN_IF_ERROR(OpenFirst(open, client->pid()));
  MutexLock lock(mutex_);
  Lane& lane = lanes_[open.local_rank];
  if (lane.presence == Presence::kHere) {
    return Status(StatusCode::kFailedPrecondition,
                  "process " + std::to_string(client->pid()) + " joins job '" + open.job +
                      "' as local rank " + std::to_string(open.local_rank) + ": process " +
                      std::to_string(lane.client->pid()) +
                      " is that already; give each process its own LOCAL_RANK");
  }
  lane = Lane{.presence = Presence::kHere, .client = client};
  return Status();
}

void HostedJob::DoOpen(const std::shared_ptr<LaneClient>& client, const OpenJob& open) {
  const Status joined = Join(client, open);
  {
    MutexLock lock(mutex_);
    if (open.local_rank < lanes_.size()) lanes_[open.local_rank].answered = true;
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
  client->Send(JobOpened{.schema = {job_->schema().begin(), job_->schema().end()},
                         .steps_per_epoch = job_->steps_per_epoch(),
                         .batches_ahead = batches_ahead_,
                         .order_parameters = job_->order_parameters(),
                         .order_origins = job_->order_origins(),
                         .inflation = job_->expected_inflation()});
}

void HostedJob::Answer(const std::shared_ptr<LaneClient>& client, std::uint32_t lane,
                       Request& request) {
  if (auto* start = std::get_if<StartRun>(&request)) {
    DoStart(lane, {.start = start->start, .position = start->position});
  } else if (auto* list = std::get_if<StartListRun>(&request)) {
    const Position position{.epoch = list->list.epoch, .step = list->list.first_step};
    DoStart(lane, {.start = list->start, .position = position, .list = std::move(list->list)});
  } else if (std::holds_alternative<StopRun>(request)) {
    LeaveRun(lane);
  } else if (const auto* still = std::get_if<StillWaiting>(&request)) {
    DoStillWaiting(lane, *still);
  } else if (const auto* stats = std::get_if<AskStats>(&request)) {
    Result<LoaderStats> got = job_->stats(lane);
    StatsReply reply{.call = stats->call, .status = got.status()};
    if (got.ok()) reply.stats = std::move(got).value();
    {
      MutexLock lock(mutex_);
      reply.stats.awaited = Awaited();
    }
    reply.learned = job_->learned();
    client->Send(std::move(reply));
  } else if (const auto* steps = std::get_if<AskSteps>(&request)) {
    Result<std::vector<StepTime>> got = job_->step_times();
    StepsReply reply{.call = steps->call, .status = got.status()};
    if (got.ok()) reply.steps = std::move(got).value();
    client->Send(std::move(reply));
  } else {
    const auto* rows = std::get_if<AskRows>(&request);
    const auto* rows_of = std::get_if<AskRowsOf>(&request);
    Result<std::vector<PlannedRow>> got =
        rows != nullptr ? job_->Explain(rows->position, lane) : job_->ExplainRows(rows_of->samples);
    RowsReply reply{.call = rows != nullptr ? rows->call : rows_of->call, .status = got.status()};
    if (got.ok()) reply.rows = std::move(got).value();
    client->Send(std::move(reply));
  }
}

void HostedJob::DoStart(std::uint32_t lane, Asked asked) {
  LeaveRun(lane);
  const std::uint64_t start = asked.start;
  Status failed;
  std::shared_ptr<LaneClient> client;
  {
    MutexLock lock(mutex_);
    failed = failed_.ok() ? CheckNotAlone(lane, asked.position) : failed_;
    client = lanes_[lane].client;
    if (failed.ok()) {
      lanes_[lane].start = start;
      lanes_[lane].asked = std::move(asked);
    }
  }
  if (!failed.ok()) {
    client->Send(RunEnded{.start = start, .status = failed});
    return;
  }
  BeginIfAllAsked();
}

// What was sent and not taken is the node's again: the client drops it when it finds it.
void HostedJob::LeaveRun(std::uint32_t lane) {
  std::shared_ptr<NodeRun> run;
  std::shared_ptr<LaneClient> client;
  bool last = false;
  {
    MutexLock lock(mutex_);
    run = std::exchange(lanes_[lane].run, nullptr);
    lanes_[lane].asked.reset();
    client = lanes_[lane].client;
    last = std::none_of(lanes_.begin(), lanes_.end(),
                        [](const Lane& each) { return each.run != nullptr; });
  }
  if (run != nullptr) {
    run->Leave(lane);
    if (last) static_cast<void>(job_->Stop(0));  // Nobody needs its reads.
  }
  if (client != nullptr) client->DropUntaken();
}

Status HostedJob::CheckNotAlone(std::uint32_t lane, const Position& position) const {
  if (lanes_[lane].next.has_value()) return Status();  // The others may yet ask as it does.
  for (std::uint32_t other = 0; other < lanes_.size(); ++other) {
    const Lane& each = lanes_[other];
    if (each.run == nullptr) continue;
    return Status(StatusCode::kFailedPrecondition,
                  Named(lane) + " comes back to job '" + first_.job + "' and asks for " +
                      Shown(position) + ", but " + Named(other) + " goes on without it, at " +
                      Shown(*each.next) +
                      " or later: start all ranks of the node again, from one state_dict()");
  }
  return Status();
}

Status HostedJob::Compare() const {
  const Lane* first = nullptr;
  bool equal = true;
  std::string all;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    const Lane& each = lanes_[lane];
    if (!each.asked.has_value()) continue;
    if (first == nullptr) first = &each;
    if (each.asked->position != first->asked->position ||
        each.asked->list.has_value() != first->asked->list.has_value()) {
      equal = false;
    }
    all += (all.empty() ? "" : ", ") + Named(lane) + " asks for " + Shown(each.asked->position);
  }
  if (equal) return Status();
  return Status(StatusCode::kFailedPrecondition,
                all +
                    ": the ranks of a node start together: iterate, set_epoch() and "
                    "load_state_dict() alike on each");
}

void HostedJob::BeginIfAllAsked() {
  Status status;
  std::optional<Asked> asked;
  {
    MutexLock lock(mutex_);
    for (const Lane& lane : lanes_) {
      if (lane.presence == Presence::kGone) continue;
      if (!lane.asked.has_value()) return;
      if (!asked.has_value()) asked = lane.asked;
    }
    if (!asked.has_value()) return;  // All are gone.
    status = Compare();
  }
  // Its reads may stay in flight for long: requests are answered meanwhile.
  if (status.ok() && !job_->Stop(kStopSliceNs)) {
    if (!ending_) Post([this] { BeginIfAllAsked(); });
    return;
  }
  if (status.ok()) status = Begin(*asked);
  if (!status.ok()) EndWait(status);
}

void HostedJob::EndWait(const Status& why) {
  std::vector<std::pair<std::shared_ptr<LaneClient>, std::uint64_t>> told;
  {
    MutexLock lock(mutex_);
    for (Lane& lane : lanes_) {
      if (!lane.asked.has_value()) continue;
      lane.asked.reset();
      told.emplace_back(lane.client, lane.start);
    }
  }
  for (const auto& [client, start] : told) client->Send(RunEnded{.start = start, .status = why});
}

std::vector<std::uint32_t> HostedJob::Awaited() const {
  std::vector<std::uint32_t> awaited;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    const Lane& each = lanes_[lane];
    if (each.presence != Presence::kGone && !each.asked.has_value()) awaited.push_back(lane);
  }
  const bool waits = std::any_of(lanes_.begin(), lanes_.end(),
                                 [](const Lane& lane) { return lane.asked.has_value(); });
  return waits ? awaited : std::vector<std::uint32_t>();
}

void HostedJob::DoStillWaiting(std::uint32_t lane, const StillWaiting& still) {
  std::string missing;
  Position position;
  {
    MutexLock lock(mutex_);
    const std::optional<Asked>& asked = lanes_[lane].asked;
    if (!asked.has_value() || asked->start != still.start) return;  // It has begun, or was left.
    position = asked->position;
    for (const std::uint32_t each : Awaited()) {
      if (lanes_[each].presence != Presence::kAwaited) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(each);
    }
  }
  if (missing.empty()) return;
  EndWait(Status(
      StatusCode::kDeadlineExceeded,
      "starting " + Shown(position) + " of job '" + first_.job + "': " + Named(lane) + " waited " +
          std::to_string(still.waited_ns / 1'000'000'000) + " s for local rank " + missing +
          " of " + std::to_string(first_.local_ranks) +
          ", which made no loader: make the same loaders on every rank of the node, in the same "
          "order, or raise start_timeout="));
}

Status HostedJob::Begin(const Asked& asked) {
  std::vector<std::unique_ptr<LaneSink>> sinks;
  std::vector<BatchSink*> pointers;
  std::vector<bool> here;
  {
    MutexLock lock(mutex_);
    for (const Lane& lane : lanes_) {
      here.push_back(lane.asked.has_value());
      sinks.push_back(std::make_unique<LaneSink>(here.back() ? lane.client : nullptr, lane.start,
                                                 job_->schema()));
      pointers.push_back(sinks.back().get());
    }
  }
  std::shared_ptr<NodeRun> run;
  if (asked.list.has_value()) {
    HEADRACE_ASSIGN_OR_RETURN(run, job_->StartList(*asked.list, pointers.front()));
  } else {
    HEADRACE_ASSIGN_OR_RETURN(run, job_->Start(asked.position, pointers));
  }
  sinks_ = std::move(sinks);  // The run that used those before has ended.
  {
    MutexLock lock(mutex_);
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      if (!here[lane]) continue;
      lanes_[lane].run = run;
      lanes_[lane].next = asked.position;
      lanes_[lane].asked.reset();
    }
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
  std::vector<std::pair<std::shared_ptr<LaneClient>, std::uint64_t>> told;
  {
    MutexLock lock(mutex_);
    for (Lane& lane : lanes_) {
      lane.asked.reset();
      lane.run.reset();
      if (lane.presence == Presence::kHere) told.emplace_back(lane.client, lane.start);
    }
  }
  if (job_ != nullptr) static_cast<void>(job_->Stop(0));
  for (const auto& [client, start] : told) {
    client->Send(RunEnded{.start = start, .status = why});
  }
}

void HostedJob::Note(const std::shared_ptr<LaneClient>& client, const BatchNote& note) {
  std::shared_ptr<NodeRun> run;
  std::optional<std::uint32_t> lane;
  {
    MutexLock lock(mutex_);
    lane = LaneOf(*client);
    if (lane.has_value()) run = lanes_[*lane].run;
  }
  Status stuck;
  const std::int64_t now_ns = MonotonicClock().NowNanos();
  for (const TakenBatch& taken : note.taken) {
    const std::shared_ptr<const Batch> batch = client->Take(taken.number);
    if (batch == nullptr || run == nullptr) continue;
    // Whatever the rank says: not before it was there, nor in the future.
    const std::int64_t taken_ns =
        std::clamp(taken.at_ns, std::min(batch->times.handed_ns, now_ns), now_ns);
    run->OnTaken(*lane, *batch, taken_ns);
    MutexLock lock(mutex_);
    lanes_[*lane].next = {.epoch = batch->epoch, .step = batch->step + 1};
    if (stuck.ok()) stuck = CheckGoesOn(*lane);
  }
  for (const std::uint64_t number : note.let_go) client->LetGo(number);
  if (note.waiting && run != nullptr) run->OnWaiting(*lane);
  if (lane.has_value() && !note.taken.empty()) TellOfTiers(client, *lane);
  if (!stuck.ok()) Post([this, stuck] { FailAll(stuck); });
}

Position HostedJob::LoopOf(const Position& next) const {
  const std::uint64_t steps = job_->steps_per_epoch();
  const std::uint64_t taken = next.epoch * steps + next.step;
  const std::uint64_t behind = first_.options.batches_behind;
  if (behind == 0) return next;
  if (taken <= behind) return {};
  const std::uint64_t last = taken - behind - 1;  // step that the loop has certainly received
  return {.epoch = last / steps, .step = last % steps + 1};
}

Status HostedJob::CheckGoesOn(std::uint32_t lane) const {
  const Position at = LoopOf(*lanes_[lane].next);
  for (std::uint32_t other = 0; other < lanes_.size(); ++other) {
    const Lane& each = lanes_[other];
    if (!each.asked.has_value() || !each.next.has_value()) continue;
    // One that stays in its epoch, or goes back, waits for others that may yet do the same, until
    // the epoch ends.
    const bool goes_back = each.asked->position.epoch <= each.next->epoch;
    if (goes_back && at.epoch <= each.next->epoch) continue;
    if (!Before(each.asked->position, at)) continue;
    return Status(StatusCode::kFailedPrecondition,
                  Named(other) + " left its loop at " + Shown(*each.next) + " and waits to start " +
                      Shown(each.asked->position) + ", but " + Named(lane) +
                      " did not leave there and is past that: leave an epoch on every rank of a "
                      "node, or on none");
  }
  return Status();
}

void HostedJob::TellOfTiers(const std::shared_ptr<LaneClient>& client, std::uint32_t lane) {
  std::vector<NamedTierStats> tiers = job_->tier_stats();
  const auto failed = static_cast<std::size_t>(std::count_if(
      tiers.begin(), tiers.end(), [](const NamedTierStats& tier) { return tier.stats.degraded; }));
  {
    MutexLock lock(mutex_);
    if (lanes_[lane].tiers_in_trouble == failed) return;
    lanes_[lane].tiers_in_trouble = failed;
  }
  client->Send(TierTrouble{.tiers = std::move(tiers)});
}

void HostedJob::DoClose(const std::shared_ptr<LaneClient>& client) {
  std::optional<std::uint32_t> lane;
  {
    MutexLock lock(mutex_);
    lane = LaneOf(*client);
  }
  if (!lane.has_value()) return;
  LeaveRun(*lane);
  {
    MutexLock lock(mutex_);
    lanes_[*lane].presence = Presence::kGone;
    lanes_[*lane].client.reset();
  }
  BeginIfAllAsked();
}

}  // namespace headrace
