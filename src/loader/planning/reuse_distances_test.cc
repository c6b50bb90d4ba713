#include "loader/planning/reuse_distances.h"

#include <string>
#include <utility>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Steps that a test made up.
class GivenUses final : public UseStream {
 public:
  explicit GivenUses(std::vector<StepUses> steps) : steps_(std::move(steps)) {}

  bool Next(StepUses& uses) override {
    if (next_ == steps_.size()) return false;
    uses = steps_[next_++];
    return true;
  }

 private:
  std::vector<StepUses> steps_;
  std::size_t next_ = 0;
};

constexpr std::uint32_t kNodes = 2;
constexpr std::uint64_t kBlocks = 12;
constexpr std::uint64_t kStepsPerEpoch = 10;

std::vector<StepUses> MakeSteps(Prng& random) {
  std::vector<StepUses> steps;
  for (std::uint64_t i = 0; i < 4 * kStepsPerEpoch; ++i) {
    StepUses step{.at = {.epoch = i / kStepsPerEpoch, .step = i % kStepsPerEpoch},
                  .ends_epoch = (i + 1) % kStepsPerEpoch == 0};
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      const std::uint64_t uses = random.Below(4);
      for (std::uint64_t j = 0; j < uses; ++j) {
        step.blocks.push_back(static_cast<std::uint32_t>(random.Below(kBlocks)));
      }
      step.node_ends.push_back(step.blocks.size());
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// For each use, looks back for the one before; for each distance, for its bin.
ReuseDistances Slow(const std::vector<StepUses>& steps, std::uint32_t node, std::uint64_t epochs) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> uses;  // step, block
  ReuseDistances counts;
  for (std::uint64_t i = 0; i < steps.size() && steps[i].at.epoch < epochs; ++i) {
    for (const std::uint32_t block : steps[i].OfNode(node)) uses.emplace_back(i, block);
    ++counts.steps;
  }
  for (std::size_t i = 0; i < uses.size(); ++i) {
    std::size_t before = i;
    while (before > 0 && uses[before - 1].second != uses[i].second) --before;
    if (before == 0) {
      ++counts.first;
      continue;
    }
    const std::uint64_t distance = uses[i].first - uses[before - 1].first;
    if (distance == 0) {
      ++counts.same_step;
      continue;
    }
    std::size_t bin = 0;
    while ((std::uint64_t{2} << bin) <= distance) ++bin;
    if (counts.bins.size() <= bin) counts.bins.resize(bin + 1);
    ++counts.bins[bin];
  }
  return counts;
}

TEST(ReuseDistancesTest, AreThoseOfTheSlowModel) {
  std::uint64_t far = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0x4e5e);
    const std::vector<StepUses> steps = MakeSteps(random);
    const auto node = static_cast<std::uint32_t>(random.Below(kNodes));
    const std::uint64_t epochs = random.Below(6);
    GivenUses uses(steps);
    const ReuseDistances counts = CountReuse(uses, node, kBlocks, epochs);
    const ReuseDistances slow = Slow(steps, node, epochs);
    EXPECT_EQ(counts.first, slow.first);
    EXPECT_EQ(counts.same_step, slow.same_step);
    EXPECT_EQ(counts.bins, slow.bins);
    EXPECT_EQ(counts.steps, slow.steps);
    far += counts.bins.size() > 4 ? 1 : 0;
  }
  EXPECT_GT(far, 0U);
}

}  // namespace
}  // namespace headrace
