#include "tier/tier_conformance.h"

#include "base/check.h"
#include "base/testing/test_executor.h"
#include "tier/ram_tier.h"
#include "tier/testing/manual_executor.h"
#include "tier/testing/sim_tier.h"

namespace headrace {
namespace {

using MakeResult = Result<std::unique_ptr<TierUnderTest>>;

class Ram final : public TierUnderTest {
 public:
  explicit Ram(std::unique_ptr<RamTier> tier) : tier_(std::move(tier)) {}
  Tier& tier() override { return *tier_; }
  void DestroyTier() override { tier_ = nullptr; }
  void Corrupt(SampleId sample) override {
    const Tier::Pin pin = tier_->Find(sample);
    const std::span<const std::byte> byte = tier_->View(pin, pin.bytes() - 1, 1).value();
    const_cast<std::byte&>(byte.front()) ^= std::byte{0x10};
  }

 private:
  std::unique_ptr<RamTier> tier_;
};

MakeResult MakeRam(std::uint64_t capacity_bytes, std::uint64_t unit_bytes) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<RamTier> tier,
                            RamTier::Make(capacity_bytes, unit_bytes));
  return MakeResult(std::make_unique<Ram>(std::move(tier)));
}

class Sim final : public TierUnderTest {
 public:
  Sim(std::unique_ptr<Executor> executor, ManualExecutor* manual, std::uint64_t capacity_bytes,
      std::uint64_t unit_bytes)
      : executor_(std::move(executor)),
        manual_(manual),
        tier_(std::make_unique<SimTier>(*executor_, SimTierOptions{.capacity_bytes = capacity_bytes,
                                                                   .unit_bytes = unit_bytes})) {}

  Tier& tier() override { return *tier_; }
  void DestroyTier() override {
    if (manual_ != nullptr) manual_->RunAll();
    tier_ = nullptr;
  }
  TierPump pump() override {
    if (manual_ == nullptr) return nullptr;
    return [this] { manual_->RunAll(); };
  }
  void Corrupt(SampleId sample) override { tier_->Corrupt(sample); }
  bool FailInserts() override {
    tier_->FailInserts();
    return true;
  }
  bool FailReads() override {
    tier_->FailReads();
    return true;
  }

 private:
  std::unique_ptr<Executor> executor_;
  ManualExecutor* const manual_;  // executor_, if it is one
  std::unique_ptr<SimTier> tier_;
};

MakeResult MakeSimThreads(std::uint64_t capacity_bytes, std::uint64_t unit_bytes) {
  return MakeResult(std::make_unique<Sim>(std::make_unique<TestExecutor>(3), nullptr,
                                          capacity_bytes, unit_bytes));
}

MakeResult MakeSimManual(std::uint64_t capacity_bytes, std::uint64_t unit_bytes) {
  auto executor = std::make_unique<ManualExecutor>();
  ManualExecutor* const manual = executor.get();
  return MakeResult(std::make_unique<Sim>(std::move(executor), manual, capacity_bytes, unit_bytes));
}

std::string CaseName(const testing::TestParamInfo<TierCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Tiers, TierConformanceTest,
                         testing::Values(TierCase{"Ram", MakeRam},
                                         TierCase{"SimThreads", MakeSimThreads},
                                         TierCase{"SimManual", MakeSimManual}),
                         CaseName);

}  // namespace
}  // namespace headrace
