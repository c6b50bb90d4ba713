#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <utility>

#include "plan/placement/use_reader.h"
#include "plan/placement/use_window.h"

namespace headrace::placement {

// The next uses of blocks as `reuse` sees them from the current step: a node's own use if it is
// soon, any node's if it is before the horizon. Reads the stream only as far as an answer needs.
//
// Thread safety: none.
// Ownership: `window` must outlive it.
class NextUses {
 public:
  static constexpr std::uint64_t kNone = UseWindow::kNone;

  NextUses(std::unique_ptr<UseStream> stream, UseWindow& window)
      : window_(window), reader_(std::move(stream), window) {}

  // Makes the first step that was not passed the current one. It stays valid until PassStep();
  // null: the run has ended. Uses from the first step of epoch e + 2 on are not soon.
  const UseReader::Step* Enter(std::uint64_t horizon_epochs) {
    if (reader_.steps().empty() && !Extend(kEnd)) return nullptr;
    const UseReader::Step& front = reader_.steps().front();
    const Position at = front.at;
    horizon_ = {.epoch = at.epoch + std::min(horizon_epochs, kEnd.epoch - at.epoch),
                .step = at.step};
    soon_ = std::min(horizon_, {.epoch = at.epoch + 2, .step = 1});
    while (!late_.empty() && late_.front().first < soon_) {
      soon_end_ = late_.front().second;
      late_.pop_front();
    }
    return &front;
  }
  void PassStep() { reader_.PassStep(); }

  // Reads one step further, if it is soon.
  bool ReadSoon() { return Extend(soon_); }
  // The end of the uses in the window that are soon.
  [[nodiscard]] std::uint64_t soon_end() const { return soon_end_; }

  // The first use of a block by a node from the window's begin on, if it is soon; otherwise kNone.
  std::uint64_t OwnNext(std::uint32_t node, std::uint32_t block) {
    while (window_.First(block) == kNone && ReadSoon()) {
    }
    const std::uint64_t first = window_.First(block);
    if (first >= soon_end_) return kNone;
    return window_.Node(first) == node ? first : OwnAfter(node, first);
  }
  // The same after a use of the block.
  std::uint64_t OwnAfter(std::uint32_t node, std::uint64_t use) {
    while (true) {
      while (window_.After(use) == kNone && ReadSoon()) {
      }
      use = window_.After(use);
      if (use >= soon_end_) return kNone;  // Also kNone.
      if (window_.Node(use) == node) return use;
    }
  }

  // The next use by any node; kNone: none is seen.
  std::uint64_t AnyNext(std::uint32_t block) {
    while (window_.First(block) == kNone && Extend(horizon_)) {
    }
    return window_.First(block);
  }
  std::uint64_t AnyAfter(std::uint64_t use) {
    while (window_.After(use) == kNone && Extend(horizon_)) {
    }
    return window_.After(use);
  }

 private:
  static constexpr Position kEnd = {.epoch = std::numeric_limits<std::uint64_t>::max(),
                                    .step = std::numeric_limits<std::uint64_t>::max()};

  bool Extend(Position limit) {
    if (!reader_.Extend(limit)) return false;
    const UseReader::Step& step = reader_.steps().back();
    if (step.at < soon_) {
      soon_end_ = step.end;
    } else {
      late_.emplace_back(step.at, step.end);
    }
    return true;
  }

  UseWindow& window_;
  UseReader reader_;
  Position horizon_;                                     // uses from here on are not seen
  Position soon_;                                        // uses from here on are not soon
  std::uint64_t soon_end_ = 0;                           // end of the uses that are soon
  std::deque<std::pair<Position, std::uint64_t>> late_;  // steps read that are not soon, their ends
};

}  // namespace headrace::placement
