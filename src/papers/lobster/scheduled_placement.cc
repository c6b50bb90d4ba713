#include "papers/lobster/scheduled_placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

// The op `at` of `ops`, for messages.
std::string OpText(const std::vector<CacheOp>& ops, std::size_t at) {
  if (at >= ops.size()) return "nothing";
  const CacheOp& op = ops[at];
  std::string text = fmt::format("block {}", op.block);
  if (op.from != kNoTier) text += fmt::format(" out of tier {}", op.from);
  if (op.to != kNoTier) text += fmt::format(" into tier {}", op.to);
  return text + (op.ahead ? " ahead of its use" : "");
}

class ScheduledPlacement final : public Placement {
 public:
  ScheduledPlacement(std::unique_ptr<Placement> inner, ScheduleReader reader,
                     ScheduledPlacementOptions options)
      : inner_(std::move(inner)), reader_(std::move(reader)), options_(std::move(options)) {}

  // Plans the steps before the start again.
  Status Skip() {
    HEADRACE_RETURN_IF_ERROR(ReadStep());
    for (;;) {
      first_ = inner_->Next();
      if (!first_.has_value() || first_->at >= options_.start) return Status();
      HEADRACE_RETURN_IF_ERROR(Follow(*first_));
      for (const CacheOp& op : first_->ops) wanted_[op.block] = op.to;
    }
  }

  std::optional<PlacedStep> Next() override {
    const bool first = !std::exchange(begun_, true);
    std::optional<PlacedStep> placed = first ? std::move(first_) : inner_->Next();
    if (!placed.has_value()) return placed;
    if (options_.verdict->status.ok()) options_.verdict->status = Follow(*placed);
    if (first) BringHeld(placed->ops);
    return placed;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    return inner_->counters();
  }

 private:
  Status ReadStep() {
    HEADRACE_ASSIGN_OR_RETURN(reading_, reader_.Next(step_));
    return Status();
  }

  Status Follow(const PlacedStep& placed) {
    if (!reading_) return Status();
    HEADRACE_RETURN_IF_ERROR(Compare(placed));
    return ReadStep();
  }

  [[nodiscard]] Status Compare(const PlacedStep& placed) const {
    if (placed.at != step_.at) {
      return FailedPrecondition(
          "following schedule {}: its next step is {}, the run's is {}; make it again with the "
          "options of this run",
          reader_.name(), StepText(step_.at), StepText(placed.at));
    }
    if (placed.ops == step_.ops) return Status();
    const auto differs =
        std::mismatch(step_.ops.begin(), step_.ops.end(), placed.ops.begin(), placed.ops.end());
    const auto op = static_cast<std::size_t>(differs.first - step_.ops.begin());
    return FailedPrecondition(
        "following schedule {}: {}: the operations of the tiers differ from op {} on: the schedule "
        "has {}, the run's placement {}; it was made by another version or with other tiers: make "
        "it again",
        reader_.name(), StepText(step_.at), op, OpText(step_.ops, op), OpText(placed.ops, op));
  }

  // Changes the held blocks to those that the schedule has at this step, before the step's own ops:
  // evictions first, then inserts.
  void BringHeld(std::vector<CacheOp>& ops) const {
    std::map<std::uint32_t, TierNumber> held;
    for (std::size_t tier = 0; tier < options_.held.size(); ++tier) {
      for (const std::uint32_t block : options_.held[tier]) {
        held.emplace(block, static_cast<TierNumber>(tier));
      }
    }
    const auto in = [](const std::map<std::uint32_t, TierNumber>& map, std::uint32_t block) {
      const auto found = map.find(block);
      return found == map.end() ? kNoTier : found->second;
    };
    std::vector<CacheOp> first;
    for (const auto& [block, tier] : held) {
      const TierNumber to = in(wanted_, block);
      if (to != tier) first.push_back({.block = block, .from = tier, .to = to});
    }
    for (const auto& [block, tier] : wanted_) {
      if (tier == kNoTier || held.contains(block)) continue;
      first.push_back({.block = block, .from = kNoTier, .to = tier});
    }
    std::stable_partition(first.begin(), first.end(),
                          [](const CacheOp& op) { return op.to == kNoTier; });
    ops.insert(ops.begin(), first.begin(), first.end());
  }

  const std::unique_ptr<Placement> inner_;
  ScheduleReader reader_;
  const ScheduledPlacementOptions options_;
  ScheduledStep step_;                          // the next one of the file
  bool reading_ = false;                        // whether there is a next one
  std::optional<PlacedStep> first_;             // the first step of `inner` from the start on
  std::map<std::uint32_t, TierNumber> wanted_;  // blocks of the schedule's tiers at the start
  bool begun_ = false;
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeScheduledPlacement(std::unique_ptr<Placement> inner,
                                                          ScheduledPlacementOptions options) {
  HEADRACE_CHECK(inner != nullptr && options.verdict != nullptr);
  HEADRACE_ASSIGN_OR_RETURN(ScheduleReader reader, ScheduleReader::Open(options.file));
  HEADRACE_RETURN_IF_ERROR(reader.CheckStart(options.start));
  auto placement =
      std::make_unique<ScheduledPlacement>(std::move(inner), std::move(reader), std::move(options));
  HEADRACE_RETURN_IF_ERROR(placement->Skip());
  return std::unique_ptr<Placement>(std::move(placement));
}

}  // namespace headrace
