#include "engine/lanes/lane_policies.h"

namespace headrace {
namespace {

LanePolicyFactory::MakePolicy OpenFixed(const LanePolicyRequest& request) {
  return [budget = request.budget] { return std::make_unique<FixedLanePolicy>(budget); };
}

}  // namespace

Registry<LanePolicyFactory>& LanePolicies() {
  static const LanePolicyFactory shared_deadline("shared_deadline", nullptr);
  static const LanePolicyFactory fixed("fixed", &OpenFixed);
  static Registry<LanePolicyFactory> policies("schedule", {&shared_deadline, &fixed});
  return policies;
}

}  // namespace headrace
