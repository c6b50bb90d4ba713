#pragma once

// The tests that every Tier must pass. A tier registers a TierCase in an INSTANTIATE_TEST_SUITE_P
// of TierConformanceTest; the tests are in tier_conformance.cc.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "tier/testing/tier_client.h"
#include "tier/tier.h"

namespace headrace {

// A tier with everything that it needs.
class TierUnderTest {
 public:
  virtual ~TierUnderTest() = default;
  virtual Tier& tier() = 0;

  // Destroys only the tier.
  virtual void DestroyTier() = 0;

  // For tiers that answer only on request: requests it.
  [[nodiscard]] virtual TierPump pump() { return nullptr; }

  // Changes the stored bytes of an entry.
  virtual void Corrupt(SampleId sample) = 0;

  // From now on the medium fails writes, or reads. Returns false if it cannot fail.
  virtual bool FailInserts() { return false; }
  virtual bool FailReads() { return false; }
};

struct TierCase {
  std::string name;

  // An error: the tier cannot be made here; its tests are skipped with that reason.
  std::function<Result<std::unique_ptr<TierUnderTest>>(std::uint64_t capacity_bytes,
                                                       std::uint64_t unit_bytes)>
      make;
};

inline void PrintTo(const TierCase& tier, std::ostream* out) { *out << tier.name; }

class TierConformanceTest : public testing::TestWithParam<TierCase> {
 protected:
  static constexpr std::uint64_t kUnitBytes = 4096;
  static constexpr std::uint64_t kUnits = 64;

  void SetUp() override { Make(kUnits); }
  void Make(std::uint64_t units);

  [[nodiscard]] Tier& tier() { return made_->tier(); }

  // Waits for the result.
  Status Insert(std::uint64_t sample, const std::string& bytes, std::size_t part_count = 1) {
    return InsertAndWait(tier(), SampleId{sample}, bytes, made_->pump(), part_count);
  }
  Result<std::string> Read(const Tier::EntryRef& entry) {
    return ReadAndWait(tier(), entry, made_->pump());
  }

  // Expects the sample with these bytes, by every way to read them.
  void ExpectHeld(std::uint64_t sample, const std::string& bytes);
  void ExpectNotHeld(std::uint64_t sample);

  [[nodiscard]] std::uint64_t used_units() { return tier().stats().used_bytes / kUnitBytes; }

  std::unique_ptr<TierUnderTest> made_;
};

}  // namespace headrace
