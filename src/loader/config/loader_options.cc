#include "headrace/loader_options.h"

#include "engine/lanes/lane_policies.h"
#include "plan/order_factory.h"
#include "plan/placement/placement.h"
#include "plan/placement/readers/ask_policy.h"

namespace headrace {

std::string DefaultOrder() { return Orders().default_name(); }
std::string DefaultPlacement() { return Placements().default_name(); }
std::string DefaultAskPolicy() { return AskPolicies().default_name(); }
std::string DefaultLanePolicy() { return LanePolicies().default_name(); }

}  // namespace headrace
