#pragma once

// Plans that read blocks, for tests of whoever runs them: legal ones, of no particular order.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "plan/order.h"

namespace headrace {

// An order that is a list of steps.
class ListedSteps final : public Order {
 public:
  explicit ListedSteps(std::vector<Step> steps) : steps_(std::move(steps)) {}
  std::optional<Step> Next() override {
    if (next_ == steps_.size()) return std::nullopt;
    return std::move(steps_[next_++]);
  }

 private:
  std::vector<Step> steps_;
  std::size_t next_ = 0;
};

// Draws a plan that takes samples of `units` cells once to three times each, within a budget that
// it draws too: from what the largest read takes to a few times that.
class BlockPlanMaker {
 public:
  BlockPlanMaker(std::span<const std::uint32_t> units, Prng& random)
      : units_(units), random_(random) {}

  std::vector<Step> Make() {
    batch_size_ = 1 + random_.Below(9);
    for (std::uint64_t rounds = 1 + random_.Below(3); rounds > 0; --rounds) QueueRuns();
    for (const Run& run : queue_) budget_units_ = std::max(budget_units_, run.units);
    if (random_.Below(3) != 0) budget_units_ += random_.Below(3 * budget_units_ + 1);
    BeginStep(0);
    while (!queue_.empty() || !residents_.empty()) {
      Fill();
      Draw();
      if (step_.deliveries.size() == batch_size_ || random_.Below(20) == 0) EndStep();
    }
    steps_.push_back(std::move(step_));
    steps_.back().ends_epoch = true;
    return std::move(steps_);
  }

  [[nodiscard]] std::uint64_t budget_units() const { return budget_units_; }

 private:
  struct Run {
    BlockRead read;
    std::uint64_t units = 0;  // of the kept ones
  };

  struct Resident {
    SampleId sample{};
    std::uint64_t number = 0;
  };

  // Runs that hold every sample once, in a random order; some cut in two reads of the same run.
  void QueueRuns() {
    std::vector<Run> runs;
    for (std::uint64_t first = 0; first < units_.size();) {
      const std::uint64_t count =
          1 + random_.Below(std::min<std::uint64_t>(units_.size() - first, 1 + random_.Below(20)));
      Run whole = MakeRun(first, count);
      Run rest = MakeRun(first, count);
      if (random_.Below(4) == 0) {
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::uint64_t part = random_.Below(8);
          if (part < 4) Keep(whole, i);
          if (part >= 4 && part < 7) Keep(rest, i);  // Else: not in this stream.
        }
      } else {
        for (std::uint32_t i = 0; i < count; ++i) whole.units += units_[first + i];
      }
      if (whole.units > 0) runs.push_back(whole);
      if (rest.units > 0) runs.push_back(rest);
      first += count;
    }
    for (std::size_t left = runs.size(); left > 1; --left) {
      std::swap(runs[left - 1], runs[random_.Below(left)]);
    }
    queue_.insert(queue_.end(), runs.begin(), runs.end());
  }

  static Run MakeRun(std::uint64_t first, std::uint64_t count) {
    Run run;
    run.read.first = SampleId{first};
    run.read.count = static_cast<std::uint32_t>(count);
    return run;
  }

  void Keep(Run& run, std::uint32_t position) const {
    run.read.kept.push_back(position);
    run.units += units_[Raw(run.read.first) + position];
  }

  void BeginStep(std::uint64_t step) {
    step_ = Step();
    step_.step = step;
  }

  void EndStep() {
    const std::uint64_t next = step_.step + 1;
    if (random_.Below(3) == 0) step_.reads_due = random_.Below(next_number_ + 1);
    steps_.push_back(std::move(step_));
    BeginStep(next);
  }

  // Reads what there is room for, or a part of it: reading ahead is not a duty.
  void Fill() {
    while (!queue_.empty() && queue_.front().units <= budget_units_ - used_units_) {
      if (!residents_.empty() && random_.Below(4) == 0) return;
      Run run = std::move(queue_.front());
      queue_.erase(queue_.begin());
      run.read.number = next_number_++;
      used_units_ += run.units;
      if (run.read.kept.empty()) {
        for (std::uint32_t i = 0; i < run.read.count; ++i) AddResident(run.read, i);
      } else {
        for (const std::uint32_t i : run.read.kept) AddResident(run.read, i);
      }
      step_.reads.push_back(std::move(run.read));
    }
  }

  void AddResident(const BlockRead& read, std::uint32_t position) {
    residents_.push_back({SampleId{Raw(read.first) + position}, read.number});
  }

  void Draw() {
    if (random_.Below(15) == 0) {  // A sample that no block read keeps.
      Deliver(SampleId{random_.Below(units_.size())}, kNoBlockRead);
      return;
    }
    if (residents_.empty()) return;
    std::swap(residents_[random_.Below(residents_.size())], residents_.back());
    const Resident drawn = residents_.back();
    residents_.pop_back();
    used_units_ -= units_[Raw(drawn.sample)];
    if (random_.Below(6) == 0) {
      step_.releases.push_back({drawn.number, drawn.sample});
    } else {
      Deliver(drawn.sample, drawn.number);
    }
  }

  void Deliver(SampleId sample, std::uint64_t number) {
    step_.deliveries.push_back({.sample = sample,
                                .slot = static_cast<std::uint32_t>(step_.deliveries.size()),
                                .block_read = number});
  }

  const std::span<const std::uint32_t> units_;
  Prng& random_;
  std::uint64_t batch_size_ = 1;
  std::uint64_t budget_units_ = 0;
  std::vector<Run> queue_;
  std::vector<Resident> residents_;
  std::uint64_t used_units_ = 0;
  std::uint64_t next_number_ = 0;
  Step step_;
  std::vector<Step> steps_;
};

// The same plan from its step `begin` on, for whoever has nothing in memory: what would be resident
// there is read again.
inline std::vector<Step> StepsFrom(std::span<const Step> plan, std::size_t begin) {
  std::map<std::uint64_t, BlockRead> before;
  std::map<std::uint64_t, std::vector<std::uint32_t>> kept;  // not delivered or released, by number
  const auto read_all = [&](const BlockRead& read) {
    before[read.number] = read;
    kept[read.number] = read.kept;
    if (!read.kept.empty()) return;
    for (std::uint32_t i = 0; i < read.count; ++i) kept[read.number].push_back(i);
  };
  const auto take = [&](std::uint64_t number, SampleId sample) {
    if (number == kNoBlockRead) return;
    std::erase(kept[number], static_cast<std::uint32_t>(Raw(sample) - Raw(before[number].first)));
  };
  for (const Step& step : plan.first(begin)) {
    for (const BlockRead& read : step.reads) read_all(read);
    for (const Delivery& delivery : step.deliveries) take(delivery.block_read, delivery.sample);
    for (const Release& release : step.releases) take(release.block_read, release.sample);
  }
  std::map<std::uint64_t, std::uint64_t> numbers;  // old to new
  std::vector<BlockRead> again;
  for (auto& [number, positions] : kept) {
    if (positions.empty()) continue;
    const std::uint64_t renumbered = numbers.size();
    numbers[number] = renumbered;
    again.push_back({.number = renumbered,
                     .first = before[number].first,
                     .count = before[number].count,
                     .kept = positions,
                     .again = true});
  }
  std::vector<Step> steps(plan.begin() + static_cast<std::ptrdiff_t>(begin), plan.end());
  for (Step& step : steps) {
    for (BlockRead& read : step.reads) {
      const std::uint64_t renumbered = numbers.size();
      numbers[read.number] = renumbered;
      read.number = renumbered;
    }
    for (Delivery& delivery : step.deliveries) {
      if (delivery.block_read != kNoBlockRead) delivery.block_read = numbers[delivery.block_read];
    }
    for (Release& release : step.releases) release.block_read = numbers[release.block_read];
    step.reads_due = 0;
  }
  if (!steps.empty()) {
    steps.front().reads.insert(steps.front().reads.begin(), again.begin(), again.end());
  }
  return steps;
}

}  // namespace headrace
