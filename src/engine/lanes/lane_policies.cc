#include "engine/lanes/lane_policies.h"

namespace headrace {
namespace {

std::unique_ptr<LanePolicy> MakeFixed(const LanePolicyRequest& request) {
  return std::make_unique<FixedLanePolicy>(request.budget);
}

}  // namespace

const Registry<LanePolicyFactory>& LanePolicies() {
  static const LanePolicyFactory shared_deadline("shared_deadline", nullptr);
  static const LanePolicyFactory fixed("fixed", &MakeFixed);
  static const Registry<LanePolicyFactory> policies(
      "schedule",
      {&shared_deadline, &LobsterPolicyFactory(), &LobsterSearchPolicyFactory(), &fixed});
  return policies;
}

}  // namespace headrace
