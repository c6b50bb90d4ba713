#include "plan/placement/readers/storage_readers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {
namespace {

class ReadersPlacement final : public Placement {
 public:
  ReadersPlacement(std::unique_ptr<Placement> inner, std::unique_ptr<UseStream> stream, bool asks)
      : inner_(std::move(inner)), stream_(std::move(stream)), asks_(asks) {}

  std::optional<PlacedStep> Next() override {
    missing_.clear();
    if (stream_->Next(uses_)) FindMissing();
    std::optional<PlacedStep> step = inner_->Next();
    if (!step.has_value()) return step;
    HEADRACE_CHECK(step->at == uses_.at);
    CountReaders();
    return step;
  }
  [[nodiscard]] std::optional<BlockHolder> Holder(std::uint32_t block,
                                                  std::uint32_t from) const override {
    return inner_->Holder(block, from);
  }
  [[nodiscard]] std::uint32_t InsertNumber(std::uint32_t block, std::uint32_t node) const override {
    return inner_->InsertNumber(block, node);
  }
  [[nodiscard]] std::optional<std::uint32_t> StorageReaders() const override { return readers_; }
  [[nodiscard]] std::uint64_t OwnersSum() const override { return inner_->OwnersSum(); }
  [[nodiscard]] std::map<std::string, double> counters() const override {
    return inner_->counters();
  }

 private:
  [[nodiscard]] std::uint32_t nodes() const {
    return static_cast<std::uint32_t>(uses_.node_ends.size());
  }

  // The uses that no tier of the nodes that are asked has, before the step.
  void FindMissing() {
    for (std::uint32_t node = 0; node < uses_.node_ends.size(); ++node) {
      for (const std::uint32_t block : uses_.OfNode(node)) {
        const std::optional<BlockHolder> holder =
            asks_ ? Reader(block, nodes()) : inner_->Holder(block, node);
        const bool has = holder.has_value() && (asks_ || holder->node == node);
        if (!has) missing_.emplace_back(block, node);
      }
    }
  }

  void CountReaders() {
    reads_.assign(uses_.node_ends.size(), false);
    for (const auto& [block, node] : missing_) {
      const std::optional<BlockHolder> holder =
          asks_ ? Reader(block, nodes()) : std::optional<BlockHolder>();
      reads_.at(holder.has_value() ? holder->node : node) = true;
    }
    readers_ = static_cast<std::uint32_t>(std::ranges::count(reads_, true));
  }

  const std::unique_ptr<Placement> inner_;
  const std::unique_ptr<UseStream> stream_;
  const bool asks_;
  StepUses uses_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> missing_;  // block, node
  std::vector<bool> reads_;                                       // by node
  std::uint32_t readers_ = 0;                                     // of the newest step
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeCountedPlacement(std::unique_ptr<Placement> placement,
                                                        const PlacementRequest& request,
                                                        bool asks) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
  return std::unique_ptr<Placement>(
      std::make_unique<ReadersPlacement>(std::move(placement), std::move(stream), asks));
}

}  // namespace headrace
