#include "plan/placement/all_nodes.h"

#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

// One stream of uses for several readers. Each step is read once, and kept until all readers have
// passed it.
class SharedUses {
 public:
  explicit SharedUses(std::unique_ptr<UseStream> stream) : stream_(std::move(stream)) {}

  void AddReader() { ++readers_; }
  // No reader is added from here on, so that passed steps can be dropped.
  void Close() {
    closed_ = true;
    Drop();
  }

  // Step `number` of the stream, for a reader that has read all steps before it.
  bool Read(std::uint64_t number, StepUses& uses) {
    HEADRACE_CHECK(number >= dropped_);
    if (number == dropped_ + steps_.size()) {
      StepUses next;
      if (!stream_->Next(next)) return false;
      steps_.push_back({.uses = std::move(next)});
    }
    Kept& kept = steps_[number - dropped_];
    uses = kept.uses;
    ++kept.passed;
    Drop();
    return true;
  }

 private:
  struct Kept {
    StepUses uses;
    std::uint64_t passed = 0;  // readers
  };

  void Drop() {
    while (closed_ && !steps_.empty() && steps_.front().passed == readers_) {
      steps_.pop_front();
      ++dropped_;
    }
  }

  const std::unique_ptr<UseStream> stream_;
  std::uint64_t readers_ = 0;
  bool closed_ = false;
  std::deque<Kept> steps_;
  std::uint64_t dropped_ = 0;  // steps before steps_
};

class SharedReader final : public UseStream {
 public:
  explicit SharedReader(std::shared_ptr<SharedUses> shared) : shared_(std::move(shared)) {
    shared_->AddReader();
  }

  bool Next(StepUses& uses) override {
    if (!shared_->Read(next_, uses)) return false;
    ++next_;
    return true;
  }

 private:
  const std::shared_ptr<SharedUses> shared_;
  std::uint64_t next_ = 0;
};

class SideBySide final : public AllNodes {
 public:
  SideBySide(std::vector<std::unique_ptr<Placement>> nodes, std::unique_ptr<UseStream> stream)
      : nodes_(std::move(nodes)), stream_(std::move(stream)) {}

  bool Next(NodesStep& step) override {
    if (!stream_->Next(uses_)) return false;
    step.at = uses_.at;
    step.ends_epoch = uses_.ends_epoch;
    step.uses.clear();
    step.use_ends.clear();
    step.ops.clear();
    step.op_ends.clear();
    for (const std::unique_ptr<Placement>& node : nodes_) {
      const std::optional<PlacedStep> one = node->Next();
      HEADRACE_CHECK(one.has_value() && one->at == step.at);
      step.uses.insert(step.uses.end(), one->uses.begin(), one->uses.end());
      step.use_ends.push_back(step.uses.size());
      step.ops.insert(step.ops.end(), one->ops.begin(), one->ops.end());
      step.op_ends.push_back(step.ops.size());
    }
    return true;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    std::map<std::string, double> all;
    for (const std::unique_ptr<Placement>& node : nodes_) {
      for (const auto& [name, value] : node->counters()) {
        double& sum = all[name];
        sum = name == "coverage_units" ? value : sum + value;
      }
    }
    return all;
  }

 private:
  const std::vector<std::unique_ptr<Placement>> nodes_;
  const std::unique_ptr<UseStream> stream_;
  StepUses uses_;
};

}  // namespace

Result<std::unique_ptr<AllNodes>> MakeSideBySide(const PlacementFactory& factory,
                                                 PlacementRequest request) {
  std::shared_ptr<SharedUses> shared;  // Made when a placement asks: requests are checked first.
  const auto open = std::move(request.uses);
  request.uses = [&shared, open]() -> Result<std::unique_ptr<UseStream>> {
    if (shared == nullptr) {
      HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, open());
      shared = std::make_shared<SharedUses>(std::move(stream));
    }
    return std::unique_ptr<UseStream>(std::make_unique<SharedReader>(shared));
  };
  std::vector<std::unique_ptr<Placement>> nodes;
  request.node = 0;
  do {  // Without nodes the first one is refused.
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Placement> one, factory.Make(request));
    nodes.push_back(std::move(one));
  } while (++request.node < request.capacity_units.size());
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> own, request.uses());
  shared->Close();
  return std::unique_ptr<AllNodes>(std::make_unique<SideBySide>(std::move(nodes), std::move(own)));
}

Result<std::unique_ptr<AllNodes>> PlacementFactory::MakeAllNodes(PlacementRequest request) const {
  return MakeSideBySide(*this, std::move(request));
}

}  // namespace headrace
