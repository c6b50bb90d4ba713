#include "engine/memory/scratch_budget.h"

#include <optional>
#include <utility>

#include "base/units.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(ScratchBudgetTest, EachThreadHasItsPartAndLargeDecodesTheRest) {
  const auto budget = ScratchBudget::Make({.capacity_bytes = 16 * kMiB, .threads = 3});
  EXPECT_EQ(budget->small().bytes_max, kMiB);
  EXPECT_EQ(budget->small().retained_bytes_max, kMiB);
  EXPECT_EQ(budget->stats().used_bytes, 6 * kMiB);
  EXPECT_TRUE(budget->Check(10 * kMiB).ok());
  EXPECT_EQ(budget->Check(10 * kMiB + 1).code(), StatusCode::kInvalidArgument);
}

TEST(ScratchBudgetTest, ThreadsHaveNoMoreThanHalf) {
  const auto budget = ScratchBudget::Make({.capacity_bytes = 16 * kMiB, .threads = 64});
  EXPECT_EQ(budget->stats().used_bytes, 8 * kMiB);
  EXPECT_EQ(budget->small().bytes_max, 64 * kKiB);
  EXPECT_TRUE(budget->Check(8 * kMiB).ok());
}

TEST(ScratchBudgetTest, WhatALeaseTookComesBackWithIt) {
  const auto budget = ScratchBudget::Make({.capacity_bytes = 10 * kMiB, .threads = 1});
  std::optional<ScratchLease> first = budget->Acquire(5 * kMiB);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(budget->Acquire(4 * kMiB).has_value());
  ScratchLease second = *budget->Acquire(3 * kMiB);
  EXPECT_EQ(budget->stats().used_bytes, 10 * kMiB);
  second = *std::move(first);  // Gives back its own.
  EXPECT_EQ(budget->stats().used_bytes, 7 * kMiB);
  second.Reset();
  EXPECT_EQ(second.bytes(), 0U);
  EXPECT_EQ(budget->stats().used_bytes, 2 * kMiB);
  EXPECT_EQ(budget->stats().used_bytes_peak, 10 * kMiB);
  EXPECT_EQ(budget->stats().large_count, 2U);
}

TEST(ScratchBudgetTest, TheMemoryThatAMessageAsksForWouldDo) {
  const ScratchBudget::Options options{
      .capacity_bytes = 16 * kMiB, .threads = 3, .memory_bytes_per_byte = 4};
  const Status status = ScratchBudget::Make(options)->Check(100 * kMiB);
  EXPECT_NE(status.message().find("raise memory= to at least 424.0 MiB"), std::string::npos)
      << status.message();
  ScratchBudget::Options raised = options;
  raised.capacity_bytes = 106 * kMiB;
  EXPECT_TRUE(ScratchBudget::Make(raised)->Check(100 * kMiB).ok());
}

}  // namespace
}  // namespace headrace
