#include "tier/tier_conformance.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/testing/test_executor.h"
#include "store/testing/temp_files.h"
#include "tier/ram_tier.h"
#include "tier/ssd_tier.h"
#include "tier/testing/faulty_io.h"
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
    const Tier::EntryRef entry = tier_->Find(sample);
    const std::span<const std::byte> byte = tier_->View(entry, entry.bytes() - 1, 1).value();
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

class Ssd final : public TierUnderTest {
 public:
  // No threads: answers on request.
  Ssd(const std::string& parent, int threads) : parent_(parent), files_(parent) {
    if (threads > 0) {
      executor_ = std::make_unique<TestExecutor>(threads);
      return;
    }
    auto manual = std::make_unique<ManualExecutor>();
    manual_ = manual.get();
    executor_ = std::move(manual);
  }
  Status Open(std::uint64_t capacity_bytes, std::uint64_t unit_bytes, bool direct, bool petty) {
    if (petty) io_.MakePetty();
    SsdTierOptions options;
    options.folder = files_.folder() + "/tier";
    options.capacity_bytes = capacity_bytes;
    options.unit_bytes = unit_bytes;
    options.dataset = "dataset";
    options.direct = direct;
    // Small, so that it is rewritten often.
    options.journal_slack_bytes = parent_.empty() ? kMiB : 1000;
    options.io = &io_;
    HEADRACE_ASSIGN_OR_RETURN(tier_, SsdTier::Open(std::move(options), *executor_));
    return Status();
  }

  Tier& tier() override { return *tier_; }
  void DestroyTier() override {
    if (manual_ != nullptr) manual_->RunAll();
    tier_ = nullptr;
  }
  TierPump pump() override {
    if (manual_ == nullptr) return nullptr;
    return [this] { manual_->RunAll(); };
  }
  // The entry's position is unknown here: search the file for its bytes.
  void Corrupt(SampleId sample) override {
    const std::string bytes =
        FindAndRead(*tier_, sample, pump()).value().value();  // as they are now
    const std::string path = files_.folder() + "/tier/" + kTierDataName;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    std::string block(4096, '\0');
    const std::string head = bytes.substr(0, 4096);
    for (off_t offset = 0; ::pread(fd, block.data(), block.size(), offset) > 0; offset += 4096) {
      if (block.compare(0, head.size(), head) != 0) continue;
      block[head.size() / 2] = static_cast<char>(block[head.size() / 2] ^ 0x10);
      HEADRACE_CHECK(::pwrite(fd, block.data(), block.size(), offset) == 4096);
      break;
    }
    HEADRACE_CHECK(::fsync(fd) == 0 && ::close(fd) == 0);
  }
  bool FailInserts() override {
    io_.FailWrites(ENOSPC);
    return true;
  }
  bool FailReads() override {
    io_.FailReads(EIO);
    return true;
  }

 private:
  const std::string parent_;
  TempFiles files_;
  FaultyIo io_;
  std::unique_ptr<Executor> executor_;
  ManualExecutor* manual_ = nullptr;  // executor_, if it is one
  std::unique_ptr<SsdTier> tier_;
};

struct SsdCase {
  std::string parent = {};
  int threads = 3;
  bool direct = true;
  bool petty = false;
};

TierCase SsdNamed(const std::string& name, const SsdCase& how) {
  return {name, [how](std::uint64_t capacity_bytes, std::uint64_t unit_bytes) -> MakeResult {
            auto made = std::make_unique<Ssd>(how.parent, how.threads);
            HEADRACE_RETURN_IF_ERROR(made->Open(capacity_bytes, unit_bytes, how.direct, how.petty));
            return MakeResult(std::move(made));
          }};
}

std::string CaseName(const testing::TestParamInfo<TierCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Tiers, TierConformanceTest,
                         testing::Values(TierCase{"Ram", MakeRam},
                                         TierCase{"SimThreads", MakeSimThreads},
                                         TierCase{"SimManual", MakeSimManual}, SsdNamed("Ssd", {}),
                                         SsdNamed("SsdManual", {.threads = 0}),
                                         SsdNamed("SsdBuffered", {.direct = false}),
                                         SsdNamed("SsdPetty", {.petty = true}),
                                         SsdNamed("SsdTmpfs", {.parent = "/dev/shm"})),
                         CaseName);

}  // namespace
}  // namespace headrace
