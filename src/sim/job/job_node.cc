#include "sim/job/job_node.h"

#include <algorithm>
#include <utility>

#include "base/cell_pool.h"
#include "base/check.h"
#include "sim/job/simulated_time.h"

namespace headrace {
namespace {

// What a task of a core takes for so many bytes of the scaled dataset.
SimExecutor::Cost CostOf(const JobWorld& world) {
  const double seconds_a_byte = world.job.cluster.ToStaging() * world.data.scale;
  return [seconds_a_byte, &hurries = world.hurries](std::uint64_t bytes) {
    return hurries ? 0 : SimulatedNanos(seconds_a_byte * static_cast<double>(bytes));
  };
}

std::uint32_t StoreThreads(const JobWorld& world) {
  const bool more = world.ranks > 1 && world.lane_policies->idle_threads_read();
  return world.reads_in_flight + (more ? world.job.cluster.staging_threads : 0);
}

}  // namespace

SharedRate::EachRate EachRead(const Cluster& cluster, const bool& hurries,
                              std::function<double(std::uint32_t users)> of_user) {
  return [share = cluster.reads_share, &hurries, of_user = std::move(of_user)](
             std::uint32_t users, std::uint64_t reads) {
    if (hurries) return kUnlimited;
    return share ? of_user(users) / static_cast<double>(reads) : of_user(users);
  };
}

void JobRank::Take(Engine& engine, Taken taken) {
  HEADRACE_CHECK(!taken_);
  engine_ = &engine;
  taken_ = std::move(taken);
  if (ready_.empty() && !ended_.has_value()) return engine.OnWaiting(lane_);
  loop_.After(0, [this] { Answer(); });
}

void JobRank::Answer() {
  if (!taken_) return;
  if (ready_.empty()) {
    if (ended_.has_value()) std::exchange(taken_, nullptr)(nullptr);
    return;
  }
  std::shared_ptr<Batch> batch = std::move(ready_.front());
  ready_.pop_front();
  engine_->OnTaken(lane_);
  std::exchange(taken_, nullptr)(std::move(batch));
}

void JobRank::OnBatch(std::shared_ptr<Batch> batch) {
  ready_.push_back(std::move(batch));
  if (taken_) loop_.After(0, [this] { Answer(); });
}

void JobRank::OnEnd(Status status) {
  ended_ = std::move(status);
  if (taken_) loop_.After(0, [this] { Answer(); });
}

// It has ended: the others run still.
void TimedDecodes::OnDecoded(const Decoded& decoded) {
  Decoded timed = decoded;
  timed.threads = std::min(executor_.busy() + 1, executor_.concurrency());
  times_.OnDecoded(timed);
}

JobNode::JobNode(const JobWorld& world, NodeNumber number, NodePlan plan, TimedNodes::Others others)
    : world_(world),
      number_(number),
      plan_(std::move(plan)),
      store_(world_.loop, world_.storage,
             {.node = number,
              .threads = StoreThreads(world_),
              .latency_ns = world_.storage_latency_ns,
              .scale = world_.data.scale,
              .least_bytes = world_.least_read_bytes}),
      nodes_(world_.link, number, world_.data.scale, std::move(others)),
      executor_(world_.loop, static_cast<int>(world_.job.cluster.staging_threads), CostOf(world_)),
      decodes_(executor_) {
  if (world_.ranks > 1) MakePolicy();
  for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) {
    ranks_.push_back(std::make_unique<JobRank>(world_.loop, rank));
  }
  if (plan_.room.has_value()) MakeTiers();
}

JobNode::~JobNode() = default;

void JobNode::MakePolicy() {
  make_policy_ = world_.lane_policies->Open(
      {.budget = {.reads = std::max(world_.reads_in_flight, world_.ranks),
                  .decodes = static_cast<std::uint32_t>(executor_.concurrency())},
       .decode_times = &decodes_.times()});
  if (make_policy_) policy_ = make_policy_();
}

void JobNode::MakeTiers() {
  const std::vector<Cluster::Tier>& tiers = world_.job.cluster.tiers;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    SharedRate* rate = world_.shared_tiers[i].get();
    if (rate == nullptr) {
      tier_rates_.push_back(std::make_unique<SharedRate>(
          world_.loop, /*users=*/1,
          EachRead(world_.job.cluster, world_.hurries,
                   [own = tiers[i].rate](std::uint32_t) { return own; })));
      rate = tier_rates_.back().get();
    }
    tiers_.push_back(std::make_unique<TimedTier>(
        *rate, TimedTier::Options{.name = std::to_string(i),
                                  .capacity_units = plan_.room->capacity_units[i],
                                  .unit_bytes = plan_.room->blocks->unit_bytes(),
                                  .scale = world_.data.scale,
                                  .user = tiers[i].shared ? number_ : 0}));
  }
}

EngineOptions JobNode::Options() const {
  EngineOptions options;
  options.batches_max = plan_.batches_max;
  options.reads_in_flight_max = std::max(options.reads_in_flight_max, StoreThreads(world_));
  const JobDataset& data = world_.data;
  const auto scaled = [&data](std::uint64_t bytes) {
    return std::max<std::uint64_t>(1, data.Scaled(static_cast<double>(bytes)));
  };
  if (world_.job.cluster.reads_share && !world_.files) {
    options.coalesce_gap_bytes = scaled(options.coalesce_gap_bytes);
    options.coalesce_bytes_max = std::max(scaled(options.coalesce_bytes_max), data.largest_bytes);
  } else {  // A read is a sample.
    options.coalesce_gap_bytes = 0;
    options.coalesce_bytes_max = 0;
  }
  options.block_gap_bytes = scaled(options.block_gap_bytes);
  options.block_read_bytes_max =
      world_.files ? 0 : std::max(scaled(options.block_read_bytes_max), data.largest_bytes);
  options.decode_task_bytes = scaled(options.decode_task_bytes);
  options.verify = false;
  return options;
}

// Memory is virtual here: nothing is written to what is read, so it need not be scarce.
EngineParts JobNode::Parts() {
  const EngineOptions options = Options();
  const std::uint64_t largest = std::max(
      {world_.data.largest_bytes, options.block_read_bytes_max, options.coalesce_bytes_max});
  const std::uint64_t in_work =
      std::uint64_t{plan_.batches_max} * world_.ranks * world_.job.batch_size *
      BufferPool::ChargedBytes(static_cast<std::uint64_t>(world_.data.mean_bytes) + 1);
  const std::uint64_t batch = BufferPool::ChargedBytes(
      world_.job.batch_size * (world_.schema.front().row_bytes + kRowAlignment) + 4096);
  EngineParts parts{
      .index = world_.data.index.get(),
      .schema = world_.schema,
      .store = &store_,
      .executor = &executor_,
      .clock = &world_.loop.clock(),
      .staging = BufferPool::Make(2 * in_work + 2 * std::uint64_t{options.reads_in_flight_max} *
                                                    BufferPool::ChargedBytes(largest)),
      .first_rank = number_ * world_.ranks,
      .policy = policy_.get(),
      .observer = &decodes_};
  for (const std::unique_ptr<JobRank>& rank : ranks_) {
    parts.lanes.push_back(
        {.sink = rank.get(),
         .batch_memory = BufferPool::Make((std::uint64_t{plan_.batches_max} + 4) * 2 * batch)});
  }
  if (plan_.room.has_value() && world_.job.cluster.nodes > 1) parts.nodes = &nodes_;
  if (plan_.order->job().exchange) {
    const std::uint64_t bytes = world_.data.Scaled(world_.job.cluster.staging_bytes / 4);
    parts.parcels = &nodes_;
    parts.parcel_memory = BufferPool::Make(bytes);
    parts.sent_memory = BufferPool::Make(bytes);
  }
  return parts;
}

Status JobNode::Start() {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> order, plan_.order->MakeOrder({}));
  EngineParts parts = Parts();
  if (plan_.order->reads_blocks()) {
    HEADRACE_ASSIGN_OR_RETURN(
        parts.residents, CellPool::Make(plan_.order->resident_units(), plan_.order->unit_bytes()));
  }
  std::unique_ptr<TierCache> cache;
  if (plan_.room.has_value()) {
    std::vector<Tier*> tiers;
    for (const std::unique_ptr<TimedTier>& tier : tiers_) tiers.push_back(tier.get());
    const std::vector<std::vector<std::uint32_t>> held(tiers.size());
    cache = std::make_unique<TierCache>(std::move(tiers), plan_.room->blocks,
                                        std::move(plan_.placement), held, number_,
                                        world_.job.cluster.nodes);
  }
  engine_ = std::make_unique<Engine>(parts, Options(), std::move(order), std::move(cache));
  engine_->Start();
  return Status();
}

void JobNode::Give(SampleId sample, std::uint64_t deadline, TakenEntry done) {
  for (const std::unique_ptr<TimedTier>& tier : tiers_) {
    if (Tier::EntryRef entry = tier->Find(sample)) return done(std::move(entry));
  }
  engine_->Bring(sample, deadline, std::move(done));
}

Status JobNode::ended() const {
  for (const std::unique_ptr<JobRank>& rank : ranks_) {
    if (rank->ended().has_value() && !rank->ended()->ok()) return *rank->ended();
  }
  return Status();
}

void JobNode::Stop() {
  if (engine_ != nullptr) engine_->Stop();
  for (const std::unique_ptr<SharedRate>& rate : tier_rates_) rate->Refresh();
}

double JobNode::tier_seconds() const {
  double seconds = 0;
  for (const std::unique_ptr<SharedRate>& rate : tier_rates_) seconds += rate->seconds();
  return seconds;
}

void JobNode::Close() {
  if (engine_ == nullptr) return;
  HEADRACE_CHECK(engine_->quiescent());
  static_cast<void>(engine_->Close());
}

}  // namespace headrace
