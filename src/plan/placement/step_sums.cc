#include "plan/placement/step_sums.h"

#include <deque>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace headrace {
namespace {

// The sums of the steps that a placement has read and not planned yet.
class SumsAhead {
 public:
  struct Of {
    std::uint64_t ids = 0;
    std::uint64_t users = 0;
    bool ends_epoch = false;
  };

  // A stream has read step `number` of the run: from 0 up, one after the other. A placement may
  // read several streams; the first one to come to a step counts.
  void Add(std::uint64_t number, const StepUses& uses) {
    if (number < end_) return;
    HEADRACE_CHECK(number == end_);
    ++end_;
    Of of{.ends_epoch = uses.ends_epoch};
    for (const std::uint32_t block : uses.blocks) of.ids += Mix64(std::uint64_t{block} + 1);
    of.users = Hash64(std::as_bytes(std::span(uses.blocks)));
    for (const std::uint64_t end : uses.node_ends) of.users = Mix64(of.users + end);
    steps_.push_back(of);
  }

  // Of the next step.
  Of Take() {
    HEADRACE_CHECK(!steps_.empty());  // A placement plans what it has read.
    const Of of = steps_.front();
    steps_.pop_front();
    return of;
  }

 private:
  std::deque<Of> steps_;   // the newest ones
  std::uint64_t end_ = 0;  // steps that were read
};

class SummedUses final : public UseStream {
 public:
  SummedUses(std::unique_ptr<UseStream> inner, std::shared_ptr<SumsAhead> sums)
      : inner_(std::move(inner)), sums_(std::move(sums)) {}

  bool Next(StepUses& uses) override {
    if (!inner_->Next(uses)) return false;
    sums_->Add(number_++, uses);
    return true;
  }

 private:
  const std::unique_ptr<UseStream> inner_;
  const std::shared_ptr<SumsAhead> sums_;
  std::uint64_t number_ = 0;
};

class SummedPlacement final : public Placement {
 public:
  SummedPlacement(std::unique_ptr<Placement> inner, std::shared_ptr<SumsAhead> ahead,
                  std::function<void(const StepSums&)> planned)
      : inner_(std::move(inner)), ahead_(std::move(ahead)), planned_(std::move(planned)) {}

  std::optional<PlacedStep> Next() override {
    std::optional<PlacedStep> step = inner_->Next();
    if (!step.has_value()) return step;
    const SumsAhead::Of of = ahead_->Take();
    sums_.at = step->at;
    sums_.ends_epoch = of.ends_epoch;
    sums_.ids = Mix64(sums_.ids + of.ids + 1);
    sums_.users = Mix64(sums_.users + of.users + 1);
    sums_.owners = Mix64(sums_.owners + inner_->OwnersSum() + 1);
    planned_(sums_);
    return step;
  }
  [[nodiscard]] std::optional<BlockHolder> Holder(std::uint32_t block,
                                                  std::uint32_t from) const override {
    return inner_->Holder(block, from);
  }
  [[nodiscard]] std::uint32_t InsertNumber(std::uint32_t block, std::uint32_t node) const override {
    return inner_->InsertNumber(block, node);
  }
  [[nodiscard]] std::optional<std::uint32_t> StorageReaders() const override {
    return inner_->StorageReaders();
  }
  [[nodiscard]] std::uint64_t OwnersSum() const override { return inner_->OwnersSum(); }
  [[nodiscard]] std::map<std::string, double> counters() const override {
    return inner_->counters();
  }

 private:
  const std::unique_ptr<Placement> inner_;
  const std::shared_ptr<SumsAhead> ahead_;
  const std::function<void(const StepSums&)> planned_;
  StepSums sums_;  // of the newest step
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeSummedPlacement(
    const PlacementFactory& factory, PlacementRequest request,
    std::function<void(const StepSums&)> planned) {
  auto ahead = std::make_shared<SumsAhead>();
  request.uses = [inner = std::move(request.uses), ahead]() -> Result<std::unique_ptr<UseStream>> {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, inner());
    return std::unique_ptr<UseStream>(std::make_unique<SummedUses>(std::move(stream), ahead));
  };
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Placement> made, factory.Make(std::move(request)));
  return std::unique_ptr<Placement>(
      std::make_unique<SummedPlacement>(std::move(made), std::move(ahead), std::move(planned)));
}

}  // namespace headrace
