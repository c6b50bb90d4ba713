#include "headrace/papers.h"

#include "base/check.h"
#include "engine/lanes/lane_policies.h"
#include "loader/planning/schedules.h"
#include "papers/lobster/lobster_policy.h"
#include "papers/lobster/schedule_plan.h"
#include "papers/nopfs/by_progress.h"
#include "papers/redox/redox_order.h"
#include "plan/order_factory.h"
#include "plan/placement/readers/ask_policy.h"

namespace headrace {

void RegisterPapers() {
  HEADRACE_CHECK(Orders().Add(RedoxOrderFactory()).ok());
  HEADRACE_CHECK(AskPolicies().Add(ByProgress()).ok());
  HEADRACE_CHECK(LanePolicies().Add(LobsterPolicyFactory()).ok());
  HEADRACE_CHECK(LanePolicies().Add(LobsterSearchPolicyFactory()).ok());
  HEADRACE_CHECK(LanePolicies().Add(ProportionalPolicyFactory()).ok());
  HEADRACE_CHECK(ScheduleFormats().Add(LobsterScheduleFormat()).ok());
}

}  // namespace headrace
