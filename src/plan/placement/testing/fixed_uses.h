#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "plan/placement/placement.h"

namespace headrace {

using Steps = std::vector<StepUses>;

// A stream of given steps.
class FixedUses final : public UseStream {
 public:
  explicit FixedUses(std::shared_ptr<const Steps> steps) : steps_(std::move(steps)) {}

  bool Next(StepUses& uses) override {
    if (next_ == steps_->size()) return false;
    uses = (*steps_)[next_++];
    return true;
  }

 private:
  const std::shared_ptr<const Steps> steps_;
  std::size_t next_ = 0;
};

}  // namespace headrace
