#include "papers/lobster/schedule_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "base/hash.h"
#include "headrace/index.h"
#include "index/atomic_file.h"
#include "loader/config/resolved_order.h"
#include "loader/planning/tier_room.h"
#include "model/preprocess_model.h"
#include "papers/lobster/lobster_policy.h"
#include "papers/lobster/make_schedule.h"
#include "papers/lobster/planned_threads.h"
#include "papers/lobster/schedule_file.h"
#include "papers/lobster/schedule_policy.h"
#include "papers/lobster/scheduled_placement.h"
#include "plan/placement/placement.h"

namespace headrace {
namespace {

void AddTable(const SampleTable& table, Hasher128& hasher) {
  hasher.AddNumber(table == nullptr ? 0 : table->size());
  if (table != nullptr) hasher.Add(std::as_bytes(std::span(*table)));
}

std::uint64_t OrderDigest(const LoaderConfig& config) {
  Hasher128 hasher;
  hasher.AddText(config.options.order.name);
  for (const auto& [name, value] : config.order->parameters()) {
    hasher.AddText(name);
    if (const auto* const number = std::get_if<std::int64_t>(&value)) {
      hasher.AddNumber(static_cast<std::uint64_t>(*number));
    } else {
      hasher.AddText(std::get<std::string>(value));
    }
  }
  AddTable(config.options.order.homes, hasher);
  AddTable(config.options.order.costs, hasher);
  if (config.options.order.left_out_count() != 0) AddTable(config.options.order.left_out, hasher);
  hasher.AddNumber(config.options.job.batch_size);
  hasher.AddNumber(config.options.job.shuffle ? 1 : 0);
  hasher.AddNumber(config.options.job.drop_last ? 1 : 0);
  return hasher.Digest()[0];
}

std::uint64_t PlacementDigest(const LoaderConfig& config) {
  const TiersSpec& tiers = config.options.tiers;
  if (tiers.tiers.empty()) return 0;
  Hasher128 hasher;
  hasher.AddText(tiers.placement);
  hasher.AddNumber(tiers.horizon_epochs);
  hasher.AddNumber(config.options.job.epochs);
  for (const TierSpec& tier : tiers.tiers) {
    hasher.AddNumber(tier.path.empty() ? 0 : 1);
    hasher.AddNumber(tier.capacity_bytes);
  }
  if (tiers.decoded_images != nullptr) AddTable(tiers.decoded_images, hasher);
  return hasher.Digest()[0];
}

PlannedThreads ThreadsOf(const LoaderConfig& config, double read_bytes, double train_seconds) {
  PlannedThreads::Options options{.budget = LaneBudgetOf(config),
                                  .lanes = config.options.job.ranks,
                                  .model = config.options.model,
                                  .read_bytes = read_bytes,
                                  .transform = TransformHash(config.options),
                                  .train_seconds = train_seconds};
  auto learned = PreprocessModel::FromRows(config.options.preprocess, {});
  if (learned.ok()) options.preprocess = std::move(learned).value();
  return PlannedThreads(std::move(options));
}

Status CheckMayReplace(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Status();
  std::vector<char> head(4096);
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  if (ScheduleReader::Open({.bytes = std::as_bytes(std::span(head)), .name = path}).ok())
    return Status();
  return {StatusCode::kInvalidArgument,
          "writing schedule " + path +
              ": the file exists and is no schedule, so it is not replaced; name another"};
}

// The header of a schedule for the job.
ScheduleHeader MakeHeader(const Index& index, const LoaderConfig& config, Position start) {
  Hasher128 dataset;
  dataset.AddText(index.fingerprint());
  const OrderOptions& options = config.options.job;
  const LaneBudget budget = LaneBudgetOf(config);
  return {.dataset = dataset.Digest(),
          .plan = {OrderDigest(config), PlacementDigest(config)},
          .seed = options.seed,
          .world_size = options.world_size,
          .first_rank = options.rank,
          .lanes = options.ranks,
          .loading_threads = budget.reads + budget.decodes,  // those that do not decode read
          .decode_threads = budget.decodes,
          .start = start};
}

// Whether a run of the job may follow a schedule. The number of threads and the start may differ.
Status CheckIsFor(const ScheduleHeader& schedule, const ScheduleHeader& job) {
  std::string differs;
  const auto add = [&](const std::string& what, std::uint64_t planned, std::uint64_t here) {
    differs +=
        fmt::format("{}{} {}, the run has {}", differs.empty() ? "" : "; ", what, planned, here);
  };
  const auto number = [&](const std::string& what, std::uint64_t planned, std::uint64_t here) {
    if (planned != here) add(what, planned, here);
  };
  if (schedule.dataset != job.dataset) {
    add("another dataset, or one that changed since: digest", schedule.dataset[0], job.dataset[0]);
  }
  number("seed", schedule.seed, job.seed);
  number("world size", schedule.world_size, job.world_size);
  number("first rank", schedule.first_rank, job.first_rank);
  number("ranks of the node", schedule.lanes, job.lanes);
  number(
      "another order (its name, parameters, batch size, shuffle, drop_last, or the memory that its "
      "parameters come from): digest",
      schedule.plan[0], job.plan[0]);
  number("other tiers (their number and capacities, placement, horizon, epochs): digest",
         schedule.plan[1], job.plan[1]);
  if (differs.empty()) return Status();
  return {StatusCode::kFailedPrecondition,
          "it was planned for something else: " + differs +
              "; plan again with `headrace plan --schedule`, or leave EngineOptions.schedule out"};
}

Result<std::uint64_t> WriteLobsterSchedule(const std::shared_ptr<const Index>& index,
                                           const LoaderOptions& options,
                                           const SchedulePlanOptions& plan) {
  HEADRACE_RETURN_IF_ERROR(CheckMayReplace(plan.path));
  HEADRACE_ASSIGN_OR_RETURN(const LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Order> order,
                            config.order->MakeOrder(plan.start));
  TierRoom room;
  std::unique_ptr<Placement> placement;
  const TiersSpec& tiers = config.options.tiers;
  if (!tiers.tiers.empty()) {
    HEADRACE_ASSIGN_OR_RETURN(const PlacementFactory* const factory,
                              Placements().Get(tiers.placement));
    HEADRACE_ASSIGN_OR_RETURN(room, MakeTierRoom(index, tiers, *config.order));
    HEADRACE_ASSIGN_OR_RETURN(
        placement,
        factory->Make(MakePlacementRequest(config.order, room, tiers.horizon_epochs, plan.start)));
  }
  const auto sample_bytes = [&index](SampleId sample) {
    std::uint64_t bytes = 0;
    index->SampleBytes(sample, {&bytes, 1});
    return bytes;
  };
  const std::uint64_t middle = index->sample_count() / 2;
  const auto read_bytes =
      static_cast<double>(std::max<std::uint64_t>(1, sample_bytes(SampleId{middle})));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<internal::AtomicFile> file,
                            internal::AtomicFile::Create(plan.path));
  HEADRACE_ASSIGN_OR_RETURN(
      const std::uint64_t steps,
      MakeSchedule({.header = MakeHeader(*index, config, plan.start),
                    .order = order.get(),
                    .placement = placement.get(),
                    .blocks = room.blocks.get(),
                    .sample_bytes = sample_bytes,
                    .threads = ThreadsOf(config, read_bytes, plan.train_seconds),
                    .steps_max = plan.steps},
                   [&](std::span<const std::byte> bytes) { return file->Append(bytes); }));
  HEADRACE_RETURN_IF_ERROR(file->Publish());
  return steps;
}

// A schedule file, followed by a session. After its end, lanes are shared by the paper's policy.
class LobsterSchedule final : public Schedule {
 public:
  LobsterSchedule(ScheduleFile file, Position start, LanePolicyFactory::MakePolicy beyond)
      : file_(std::move(file)), start_(start), beyond_(std::move(beyond)) {}

  [[nodiscard]] Position start() const override { return start_; }

  Result<ScheduledRun> Begin(Position start) override {
    ScheduledRun run;
    const auto verdict = std::make_shared<ScheduleVerdict>();
    HEADRACE_ASSIGN_OR_RETURN(
        run.policy,
        SchedulePolicy::Open({.file = file_, .start = start, .verdict = verdict}, beyond_()));
    run.place = [file = file_, start, verdict](
                    std::unique_ptr<Placement> inner,
                    const std::vector<std::vector<std::uint32_t>>& held) {
      return MakeScheduledPlacement(
          std::move(inner), {.file = file, .start = start, .held = held, .verdict = verdict});
    };
    return run;
  }

 private:
  const ScheduleFile file_;
  const Position start_;
  const LanePolicyFactory::MakePolicy beyond_;
};

class LobsterSchedules final : public ScheduleFormat {
 public:
  [[nodiscard]] std::string_view name() const override { return LobsterPolicyFactory().name(); }

  [[nodiscard]] Result<std::uint64_t> Write(const std::shared_ptr<const Index>& index,
                                            const LoaderOptions& options,
                                            const SchedulePlanOptions& plan) const override {
    return WriteLobsterSchedule(index, options, plan);
  }

  [[nodiscard]] Result<std::unique_ptr<Schedule>> Open(
      ScheduleFile file, const Index& index, const LoaderConfig& config,
      const LanePolicyRequest& request) const override {
    HEADRACE_ASSIGN_OR_RETURN(const ScheduleHeader header, VerifySchedule(file));
    const Status same = CheckIsFor(header, MakeHeader(index, config, header.start));
    if (!same.ok()) return same.WithContext("schedule " + file.name);
    return std::unique_ptr<Schedule>(std::make_unique<LobsterSchedule>(
        std::move(file), header.start, LobsterPolicyFactory().Open(request)));
  }
};

}  // namespace

const ScheduleFormat& LobsterScheduleFormat() {
  static const LobsterSchedules format;
  return format;
}

}  // namespace headrace
