#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/placement/use_window.h"
#include "plan/placement/uses.h"

namespace headrace::placement {

// Reads a stream of uses into a window: step by step, as far ahead as a planner asks.
//
// Thread safety: none.
// Ownership: `window` must outlive it. The planner passes the window's uses; nobody else adds any.
class UseReader {
 public:
  struct Step {
    Position at;
    bool ends_epoch = false;
    std::uint64_t first = 0;  // its uses are [first, end)
    std::uint64_t end = 0;
    std::vector<std::uint64_t> node_ends;  // ends of each node's uses, with all nodes
  };

  UseReader(std::unique_ptr<UseStream> stream, UseWindow& window)
      : stream_(std::move(stream)), window_(window) {}

  // Reads one step further, if there is one before `limit`.
  bool Extend(Position limit) {
    if (ended_) return false;
    if (!peeked_ && !stream_->Next(peek_)) {
      ended_ = true;
      return false;
    }
    peeked_ = true;
    const Position at = peek_.at;
    if (at.epoch > limit.epoch || (at.epoch == limit.epoch && at.step >= limit.step)) return false;
    Append();
    peeked_ = false;
    return true;
  }

  // Whether the run ends with the last step that was read.
  [[nodiscard]] bool ended() const { return ended_; }
  // The steps whose uses are in the window.
  [[nodiscard]] const std::deque<Step>& steps() const { return steps_; }
  // Uses of the last step read that were then the first of their block in the window.
  [[nodiscard]] const std::vector<std::uint64_t>& fresh() const { return fresh_; }

  // Drops the first step, after all of its uses were passed.
  void PassStep() {
    HEADRACE_CHECK(window_.begin() == steps_.front().end);
    steps_.pop_front();
  }

 private:
  void Append() {
    fresh_.clear();
    Step step{.at = peek_.at, .ends_epoch = peek_.ends_epoch, .first = window_.end()};
    if (const std::optional<std::uint32_t> only = window_.only(); only.has_value()) {
      HEADRACE_CHECK(*only < peek_.node_ends.size());
      window_.Append(peek_.OfNode(*only), *only, fresh_);
    } else {
      for (std::uint32_t node = 0; node < peek_.node_ends.size(); ++node) {
        window_.Append(peek_.OfNode(node), node, fresh_);
        step.node_ends.push_back(window_.end());
      }
    }
    step.end = window_.end();
    steps_.push_back(std::move(step));
  }

  const std::unique_ptr<UseStream> stream_;
  UseWindow& window_;
  StepUses peek_;
  bool peeked_ = false;  // whether peek_ is a step that was not added yet
  bool ended_ = false;
  std::deque<Step> steps_;
  std::vector<std::uint64_t> fresh_;
};

}  // namespace headrace::placement
