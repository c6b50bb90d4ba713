#include "papers/nopfs/by_progress.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace headrace {
namespace {

class ProgressPlacement final : public Placement {
 public:
  ProgressPlacement(std::unique_ptr<Placement> inner, std::uint32_t node, AskPolicy::Filled filled)
      : inner_(std::move(inner)), node_(node), filled_(std::move(filled)) {}

  std::optional<PlacedStep> Next() override {
    std::optional<PlacedStep> step = inner_->Next();
    if (!step.has_value()) return step;
    filled_now_ = filled_();
    for (PlannedUse& use : step->uses) {
      if (!use.at_peer || IsThere(use.block, use.peer)) continue;
      // Another one may be further.
      std::optional<BlockHolder> other = Holder(use.block, 0);
      if (other.has_value() && other->node == node_) other = Holder(use.block, node_ + 1);
      use.at_peer = other.has_value();
      use.peer = other.has_value() ? other->node : 0;
      use.peer_tier = other.has_value() ? other->tier : kNoTier;
    }
    return step;
  }
  [[nodiscard]] std::optional<BlockHolder> Holder(std::uint32_t block,
                                                  std::uint32_t from) const override {
    std::optional<BlockHolder> holder = inner_->Holder(block, from);
    while (holder.has_value() && holder->node != node_ && !IsThere(block, holder->node)) {
      holder = inner_->Holder(block, holder->node + 1);
    }
    return holder;
  }
  [[nodiscard]] std::optional<std::uint32_t> StorageReaders() const override {
    return inner_->StorageReaders();
  }
  [[nodiscard]] std::uint32_t InsertNumber(std::uint32_t block, std::uint32_t node) const override {
    return inner_->InsertNumber(block, node);
  }
  [[nodiscard]] std::uint64_t OwnersSum() const override { return inner_->OwnersSum(); }
  [[nodiscard]] std::map<std::string, double> counters() const override {
    return inner_->counters();
  }

 private:
  [[nodiscard]] bool IsThere(std::uint32_t block, std::uint32_t node) const {
    const std::uint32_t number = inner_->InsertNumber(block, node);
    return number == 0 || static_cast<std::int32_t>(filled_now_ - number) >= 0;
  }

  const std::unique_ptr<Placement> inner_;
  const std::uint32_t node_;
  const AskPolicy::Filled filled_;
  std::uint32_t filled_now_ = 0;  // with the newest step
};

}  // namespace

std::unique_ptr<Placement> MakeByProgress(std::unique_ptr<Placement> inner, std::uint32_t node,
                                          AskPolicy::Filled filled) {
  return std::make_unique<ProgressPlacement>(std::move(inner), node, std::move(filled));
}

const AskPolicy& ByProgress() {
  static const AskPolicy policy("progress", &MakeByProgress);
  return policy;
}

}  // namespace headrace
