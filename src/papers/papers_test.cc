#include "headrace/papers.h"

#include "engine/lanes/lane_policies.h"
#include "gtest/gtest.h"
#include "loader/planning/schedules.h"
#include "plan/order_factory.h"
#include "plan/placement/readers/ask_policy.h"

namespace headrace {
namespace {

TEST(PapersTest, AreRowsOfTheTablesOnceHoweverOftenTheyAreRegistered) {
  RegisterPapers();
  RegisterPapers();
  EXPECT_EQ(Orders().Names(), "'exact', 'batch', 'epoch', 'redox'");
  EXPECT_EQ(AskPolicies().Names(), "'plan', 'progress'");
  EXPECT_EQ(LanePolicies().Names(),
            "'shared_deadline', 'fixed', 'lobster', 'lobster_search', 'proportional'");
  EXPECT_EQ(ScheduleFormats().Names(), "'lobster'");
}

}  // namespace
}  // namespace headrace
