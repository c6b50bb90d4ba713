#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "plan/exact_order.h"
#include "plan/order.h"

namespace headrace {

inline constexpr std::int64_t kMs = 1'000'000;

// The plan of several ranks the obvious way: their own plans, side by side. Of orders that read no
// blocks.
class MergedOrder final : public Order {
 public:
  explicit MergedOrder(std::vector<std::unique_ptr<Order>> ranks) : ranks_(std::move(ranks)) {}

  std::optional<Step> Next() override {
    std::optional<Step> merged;
    for (const std::unique_ptr<Order>& rank : ranks_) {
      std::optional<Step> step = rank->Next();
      if (!step.has_value()) return std::nullopt;
      if (!merged.has_value()) {
        merged = std::move(step);
        continue;
      }
      merged->deliveries.insert(merged->deliveries.end(), step->deliveries.begin(),
                                step->deliveries.end());
    }
    return merged;
  }

 private:
  std::vector<std::unique_ptr<Order>> ranks_;
};

// Where a lane's batches wait for a consumer in virtual time, who is woken once.
struct SimSink final : BatchSink {
  void OnBatch(std::shared_ptr<Batch> batch) override {
    ready.push_back(std::move(batch));
    if (wake) std::exchange(wake, nullptr)();
  }
  void OnEnd(Status status) override {
    HEADRACE_CHECK(!end.has_value());
    end = std::move(status);
    if (wake) std::exchange(wake, nullptr)();
  }

  std::deque<std::shared_ptr<Batch>> ready;
  std::optional<Status> end;
  std::function<void()> wake;
};

}  // namespace headrace
