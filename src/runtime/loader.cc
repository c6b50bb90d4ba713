#include "runtime/loader.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/units.h"
#include "engine/engine.h"
#include "runtime/job.h"
#include "runtime/machine.h"
#include "runtime/planner.h"
#include "runtime/schema.h"
#include "runtime/thread_executor.h"

namespace headrace {
namespace {

// Decoding yields to the training loop when both want a core.
constexpr int kDecodeNice = 5;

// The largest block read that staging memory holds two of: one is copied while the next arrives.
std::uint64_t BlockReadBytes(std::uint64_t staging_bytes) {
  const std::uint64_t half = std::max<std::uint64_t>(staging_bytes / 2, 1);
  // Rounded down to what a buffer is charged: see BufferPool.
  const std::uint64_t buffer = half - half % std::max(kBufferAlignment, std::bit_floor(half) / 8);
  return buffer - std::min<std::uint64_t>(buffer, kWideningMax);
}

// How many steps' sources Explain() can tell of.
constexpr std::size_t kSourcesKept = 256;

void Add(const TierCounts& run, TierCounts& total) {
  total.uses.resize(std::max(total.uses.size(), run.uses.size()));
  for (std::size_t i = 0; i < run.uses.size(); ++i) {
    total.uses[i].samples += run.uses[i].samples;
    total.uses[i].bytes += run.uses[i].bytes;
    total.uses[i].ahead += run.uses[i].ahead;
  }
  total.storage_uses += run.storage_uses;
  total.waits += run.waits;
  total.fetched_ahead += run.fetched_ahead;
  total.moved += run.moved;
  total.not_kept += run.not_kept;
  total.fallbacks += run.fallbacks;
  total.planned.resize(std::max(total.planned.size(), run.planned.size()));
  for (std::size_t i = 0; i < run.planned.size(); ++i) total.planned[i] += run.planned[i];
}

void Add(const EngineStats& run, EngineStats& total) {
  total.batches += run.batches;
  total.samples += run.samples;
  total.reads += run.reads;
  total.read_bytes += run.read_bytes;
  total.sample_bytes += run.sample_bytes;
  total.decode_ns += run.decode_ns;
  for (std::size_t i = 0; i < kStallCauses; ++i) total.stall_ns[i] += run.stall_ns[i];
  total.block_reads += run.block_reads;
  total.block_bytes += run.block_bytes;
  total.reread_bytes += run.reread_bytes;
  total.kept_bytes += run.kept_bytes;
  total.pinned_reads += run.pinned_reads;
  total.pinned_bytes += run.pinned_bytes;
  Add(run.tiers, total.tiers);
  total.substituted += run.substituted;
  for (const Substitution& substitution : run.substitutions) {
    if (total.substitutions.size() >= kSubstitutionsListed) break;
    total.substitutions.push_back(substitution);
  }
  total.reads_in_flight = run.reads_in_flight;
  total.steps_in_work = run.steps_in_work;
  total.staging = run.staging;  // Of the memory, which all runs share.
  total.batch = run.batch;
  total.resident = run.resident;
  total.pinned = run.pinned;
}

void Add(const Batch& batch, Delivered& total) {
  ++total.batches;
  total.samples += batch.samples.size();
  total.substituted += batch.substitutions.size();
  for (const Substitution& substitution : batch.substitutions) {
    if (total.substitutions.size() >= kSubstitutionsListed) break;
    total.substitutions.push_back(substitution);
  }
}

// One plan in progress: an engine and the queue it fills.
class Run {
 public:
  Run(const Engine::Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
      std::unique_ptr<TierCache> tiers, ThreadExecutor& executor)
      : executor_(executor),
        clock_(*parts.clock),
        start_ns_(clock_.NowNanos()),
        engine_(WithSink(parts, queue_), options, std::move(order), std::move(tiers)) {
    engine_.Start();
  }

  ~Run() { Close(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<BatchQueue::Taken> Next(std::int64_t timeout_ns) {
    if (!queue_.ready()) {
      engine_.OnWaiting();
      Help(timeout_ns);
    }
    HEADRACE_ASSIGN_OR_RETURN(BatchQueue::Taken taken, queue_.Take(timeout_ns));
    if (taken.batch != nullptr) engine_.OnTaken();
    return taken;
  }

  // Ends the run and wakes who waits in Next(). Idempotent.
  void Close() {
    engine_.Stop();
    queue_.Close();
    engine_.Close();
  }

  [[nodiscard]] EngineStats stats() const { return engine_.stats(); }
  [[nodiscard]] std::int64_t running_ns() const { return clock_.NowNanos() - start_ns_; }

 private:
  static Engine::Parts WithSink(Engine::Parts parts, BatchQueue& queue) {
    parts.sink = &queue;
    return parts;
  }

  // The consumer's thread does what it would wait for, as long as there is such work.
  void Help(std::int64_t timeout_ns) {
    const std::int64_t begin_ns = clock_.NowNanos();
    while (!queue_.ready() && executor_.RunOne()) {
      if (timeout_ns >= 0 && clock_.NowNanos() - begin_ns >= timeout_ns) return;
    }
  }

  ThreadExecutor& executor_;
  const Clock& clock_;
  const std::int64_t start_ns_;
  BatchQueue queue_;
  Engine engine_;
};

}  // namespace

class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Index> index, Job job,
       const std::optional<ExpectedInflation>& inflation, std::shared_ptr<CellPool> residents,
       std::unique_ptr<NodeTiers> tiers, std::unique_ptr<ThreadExecutor> executor,
       OpenedStore store)
      : index_(std::move(index)),
        options_(std::move(job.options)),
        schema_(std::move(job.schema)),
        steps_per_epoch_(job.steps_per_epoch),
        planner_(std::move(job.planner)),
        budget_(job.budget),
        inflation_(inflation),
        device_read_bytes_(DeviceReadBytes()),
        staging_(BufferPool::Make(budget_.staging_bytes)),
        batch_memory_(BufferPool::Make(budget_.batch_bytes)),
        residents_(std::move(residents)),
        pinned_(budget_.pinned_bytes == 0 ? nullptr
                                          : std::make_shared<PinnedBlocks>(budget_.pinned_bytes)),
        tiers_(std::move(tiers)),
        executor_(std::move(executor)),
        store_(std::move(store)) {}

  ~Impl() { End(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status CheckProcess() const {
    if (getpid() == pid_) return Status();
    return Status(StatusCode::kFailedPrecondition,
                  "a loader made in process " + std::to_string(pid_) +
                      " is used in its forked child " + std::to_string(getpid()) +
                      ": threads do not survive a fork; make the loader in the child");
  }
  [[nodiscard]] bool forked() const { return getpid() != pid_; }

  using MakeTiers = std::function<Result<std::unique_ptr<TierCache>>(NodeTiers&)>;

  // `make_tiers` is asked once no run uses the tiers.
  Status Begin(std::unique_ptr<Order> order, const MakeTiers& make_tiers) {
    MutexLock lifecycle(lifecycle_mutex_);
    EndRun();
    std::unique_ptr<TierCache> tiers;
    if (tiers_ != nullptr) {
      HEADRACE_ASSIGN_OR_RETURN(tiers, make_tiers(*tiers_));
    }
    EngineOptions options;
    options.batches_max = budget_.batches_max;
    options.coalesce_bytes_max = std::min(options.coalesce_bytes_max, budget_.staging_bytes / 4);
    options.block_read_bytes_max =
        std::min(options.block_read_bytes_max, BlockReadBytes(budget_.staging_bytes));
    // Each made-up read holds one sample.
    if (options_.io == IoChoice::kSynthetic) {
      options.coalesce_bytes_max = 0;
      options.block_read_bytes_max = 0;
    }
    options.on_error = options_.on_error;
    options.verify = options_.verify && options_.io != IoChoice::kSynthetic;
    options.seed = options_.job.seed;
    auto run =
        std::make_shared<Run>(Engine::Parts{.index = index_.get(),
                                            .schema = schema_,
                                            .store = &store_.store(),
                                            .executor = executor_.get(),
                                            .clock = &clock_,
                                            .staging = staging_,
                                            .batch_memory = batch_memory_,
                                            .residents = residents_,
                                            .pinned = pinned_,
                                            .model = options_.model ? &*options_.model : nullptr},
                              options, std::move(order), std::move(tiers), *executor_);
    MutexLock lock(mutex_);
    run_ = std::move(run);
    return Status();
  }

  void End() {
    MutexLock lifecycle(lifecycle_mutex_);
    EndRun();
  }

  // The run stays visible until what it did has been added up: counters never go back.
  void EndRun() HEADRACE_LOCKS_REQUIRED(lifecycle_mutex_) {
    const std::shared_ptr<Run> run = this->run();  // Dies after the lock below is free.
    if (run == nullptr) return;
    run->Close();
    MutexLock lock(mutex_);
    Add(run->stats(), ended_);
    ended_ns_ += run->running_ns();
    run_ = nullptr;
  }

  [[nodiscard]] std::shared_ptr<Run> run() const {
    MutexLock lock(mutex_);
    return run_;
  }

  void OnTaken(const Batch& batch) {
    MutexLock lock(mutex_);
    Add(batch, delivered_);
    if (tiers_ == nullptr) return;
    sources_.push_back({{.epoch = batch.epoch, .step = batch.step}, batch.sources});
    if (sources_.size() > kSourcesKept) sources_.pop_front();
  }

  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const {
    std::vector<NamedTierStats> all;
    if (tiers_ == nullptr) return all;
    for (const std::unique_ptr<Tier>& tier : tiers_->tiers()) {
      all.push_back({.name = tier->name(), .stats = tier->stats()});
    }
    return all;
  }

  [[nodiscard]] LoaderStats stats() const {
    LoaderStats stats;
    {
      MutexLock lock(mutex_);
      stats.delivered = delivered_;
      stats.engine = ended_;
      stats.running_ns = ended_ns_;
      if (run_ != nullptr) {
        Add(run_->stats(), stats.engine);
        stats.running_ns += run_->running_ns();
      }
    }
    stats.tiers = tier_stats();
    stats.store = store_.store().stats();
    stats.budget = budget_;
    stats.threads = options_.threads;
    stats.index_bytes = index_->file_bytes();
    const std::int64_t read_bytes = DeviceReadBytes();
    stats.device_read_bytes = read_bytes < 0 ? -1 : read_bytes - device_read_bytes_;
    return stats;
  }

  // Rows of deliveries; what tiers have to do with them is known of a step of the loader's own
  // order.
  [[nodiscard]] Result<std::vector<PlannedRow>> Describe(
      std::span<const Delivery> deliveries,
      const std::optional<Position>& position = std::nullopt) const {
    std::vector<TierNumber> actual;
    std::optional<std::vector<PlannedUse>> planned;
    if (tiers_ != nullptr && position.has_value() && !planner_->reads_blocks()) {
      actual = SourcesOf(*position);
      HEADRACE_ASSIGN_OR_RETURN(planned, tiers_->Planned(*position));
    }
    std::vector<PlannedRow> rows;
    for (std::size_t i = 0; i < deliveries.size(); ++i) {
      const Delivery& delivery = deliveries[i];
      for (const BatchField& field : schema_) {
        PlannedRow row{.slot = delivery.slot, .sample = delivery.sample, .field = field.name};
        if (field.is_inline()) {
          row.source = "index";
        } else {
          HEADRACE_ASSIGN_OR_RETURN(const Extent extent,
                                    index_->extent(field.index_field, delivery.sample));
          HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo object, index_->object(extent.object));
          row.source = delivery.block_read != kNoBlockRead ? "block"
                       : planned.has_value()               ? SourceName(planned->at(i).tier)
                                                           : SourceName(kNoTier);
          if (i < actual.size()) row.actual = SourceName(actual[i]);
          row.object = index_->root() + "/" + std::string(object.name);
          row.range = extent.range;
        }
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }

  const std::shared_ptr<const Index> index_;
  const LoaderOptions options_;
  const std::vector<BatchField> schema_;
  const std::uint64_t steps_per_epoch_;
  const std::shared_ptr<const Planner> planner_;
  const Budget budget_;
  const std::optional<ExpectedInflation> inflation_;

 private:
  [[nodiscard]] std::string SourceName(TierNumber tier) const {
    return tier == kNoTier ? "storage" : tiers_->tiers()[tier]->name();
  }

  [[nodiscard]] std::vector<TierNumber> SourcesOf(Position position) const {
    MutexLock lock(mutex_);
    for (auto step = sources_.rbegin(); step != sources_.rend(); ++step) {
      if (step->first == position) return step->second;
    }
    return {};
  }

  const pid_t pid_ = getpid();
  const std::int64_t device_read_bytes_;  // when the loader was opened
  const std::shared_ptr<BufferPool> staging_;
  const std::shared_ptr<BufferPool> batch_memory_;
  const std::shared_ptr<CellPool> residents_;   // null: the order reads no blocks
  const std::shared_ptr<PinnedBlocks> pinned_;  // null: there is no memory for them
  MonotonicClock clock_;
  const std::unique_ptr<NodeTiers> tiers_;  // null: none
  const std::unique_ptr<ThreadExecutor> executor_;
  OpenedStore store_;

  Mutex lifecycle_mutex_;  // One run begins or ends at a time: they share memory and its hook.
  mutable Mutex mutex_;
  std::shared_ptr<Run> run_ HEADRACE_GUARDED_BY(mutex_);
  Delivered delivered_ HEADRACE_GUARDED_BY(mutex_);
  EngineStats ended_ HEADRACE_GUARDED_BY(mutex_);  // of runs that ended
  std::int64_t ended_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;
  // Of the newest steps taken, with tiers.
  std::deque<std::pair<Position, std::vector<TierNumber>>> sources_ HEADRACE_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<Loader>> Loader::Open(std::shared_ptr<const Index> index,
                                             LoaderOptions options) {
  HEADRACE_ASSIGN_OR_RETURN(Job job, SettleJob(index, std::move(options)));
  const Planner& planner = *job.planner;
  HEADRACE_ASSIGN_OR_RETURN(const std::optional<ExpectedInflation> inflation,
                            planner.Inflation(*index));
  std::unique_ptr<NodeTiers> tiers;
  if (!job.options.tiers.tiers.empty()) {
    HEADRACE_ASSIGN_OR_RETURN(tiers, NodeTiers::Open(index, job.schema, job.options.tiers,
                                                     job.planner, job.options.verify));
  }
  std::shared_ptr<CellPool> residents;
  if (planner.reads_blocks()) {
    HEADRACE_ASSIGN_OR_RETURN(residents,
                              CellPool::Make(planner.resident_units(), planner.unit_bytes()));
  }
  HEADRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<ThreadExecutor> executor,
      ThreadExecutor::Make(
          {.threads = job.options.threads, .name = "headrace-decode", .nice = kDecodeNice}));
  HEADRACE_ASSIGN_OR_RETURN(OpenedStore store, OpenStore(index, job.options.io));
  return std::unique_ptr<Loader>(new Loader(
      std::make_unique<Impl>(std::move(index), std::move(job), inflation, std::move(residents),
                             std::move(tiers), std::move(executor), std::move(store))));
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Loader::~Loader() {
  // The threads that the parts would wait for are the parent's; so is everything they hold.
  // NOLINTNEXTLINE(bugprone-unused-return-value): left to the parent on purpose
  if (impl_->forked()) (void)impl_.release();
}

std::span<const BatchField> Loader::schema() const { return impl_->schema_; }
std::uint64_t Loader::steps_per_epoch() const { return impl_->steps_per_epoch_; }
const Index& Loader::index() const { return *impl_->index_; }
OrderParameters Loader::order_parameters() const { return impl_->planner_->parameters(); }
const std::optional<ExpectedInflation>& Loader::expected_inflation() const {
  return impl_->inflation_;
}

Status Loader::Start(Position position) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> order, impl_->planner_->MakeOrder(position));
  return impl_->Begin(std::move(order),
                      [position](NodeTiers& tiers) { return tiers.Begin(position); });
}

Status Loader::StartList(ListOrderOptions list) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  if (impl_->options_.order.name != "exact") {
    return Status(StatusCode::kInvalidArgument,
                  "a list of samples in order '" + impl_->options_.order.name +
                      "': who gives the order wants it kept; use order 'exact'");
  }
  const bool ascending = std::is_sorted(list.batch_ends.begin(), list.batch_ends.end());
  const std::uint64_t last = list.batch_ends.empty() ? 0 : list.batch_ends.back();
  if (!ascending || last != list.ids.size()) {
    return Status(StatusCode::kInvalidArgument, "batch ends of a list: must ascend to its " +
                                                    std::to_string(list.ids.size()) +
                                                    " ids, they end at " + std::to_string(last));
  }
  if (list.epoch >= kEpochsMax) {
    return Status(StatusCode::kInvalidArgument,
                  "epoch of a list: got " + std::to_string(list.epoch) + ", must be below " +
                      std::to_string(kEpochsMax));
  }
  const std::uint64_t count = impl_->index_->sample_count();
  for (std::size_t i = 0; i < list.ids.size(); ++i) {
    if (Raw(list.ids[i]) < count) continue;
    return Status(StatusCode::kOutOfRange, "sampler position " + std::to_string(i) + ": sample " +
                                               std::to_string(Raw(list.ids[i])) +
                                               ", the dataset has " + std::to_string(count));
  }
  std::unique_ptr<Order> order = MakeListOrder(list);
  return impl_->Begin(std::move(order), [&list](NodeTiers& tiers) { return tiers.Begin(list); });
}

Result<BatchQueue::Taken> Loader::Next(std::int64_t timeout_ns) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  const std::shared_ptr<Run> run = impl_->run();
  if (run == nullptr) return Status(StatusCode::kFailedPrecondition, "no run was started");
  Result<BatchQueue::Taken> taken = run->Next(timeout_ns);
  if (taken.ok() && taken.value().batch != nullptr) impl_->OnTaken(*taken.value().batch);
  return taken;
}

void Loader::Stop() {
  if (!impl_->forked()) impl_->End();
}

Result<std::vector<PlannedRow>> Loader::Explain(Position position) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Order> order,
                            impl_->planner_->MakeOrder(position));
  const std::optional<Step> step = order->Next();
  if (!step.has_value()) return Status(StatusCode::kOutOfRange, "the plan has no such step");
  return impl_->Describe(step->deliveries, position);
}

Result<std::vector<PlannedRow>> Loader::ExplainRows(std::span<const SampleId> samples) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  std::vector<Delivery> deliveries;
  deliveries.reserve(samples.size());
  for (const SampleId sample : samples) {
    deliveries.push_back({.sample = sample, .slot = static_cast<std::uint32_t>(deliveries.size())});
  }
  return impl_->Describe(deliveries);
}

Result<LoaderStats> Loader::stats() const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->stats();
}

// Nothing in a forked child: its tiers' locks may be held by threads that it does not have.
std::vector<NamedTierStats> Loader::tier_stats() const {
  if (impl_->forked()) return {};
  return impl_->tier_stats();
}

}  // namespace headrace
