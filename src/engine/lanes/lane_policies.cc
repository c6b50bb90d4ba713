#include "engine/lanes/lane_policies.h"

namespace headrace {
namespace {

std::unique_ptr<LanePolicy> MakeLobster(const LanePolicyRequest& request,
                                        LobsterOptions::Search search) {
  return std::make_unique<LobsterLanePolicy>(LobsterLanePolicy::Options{
      .budget = request.budget, .search = search, .decode_threads = request.decode_threads});
}

std::unique_ptr<LanePolicy> MakeLobsterSearch(const LanePolicyRequest& request) {
  return MakeLobster(request, LobsterOptions::Search::kBinarySearch);
}

std::unique_ptr<LanePolicy> MakeFixed(const LanePolicyRequest& request) {
  return std::make_unique<FixedLanePolicy>(request.budget);
}

}  // namespace

std::unique_ptr<LanePolicy> MakeLobsterPolicy(const LanePolicyRequest& request) {
  return MakeLobster(request, LobsterOptions::Search::kMakespan);
}

const Registry<LanePolicyFactory>& LanePolicies() {
  static const LanePolicyFactory shared_deadline("shared_deadline", nullptr);
  static const LanePolicyFactory lobster("lobster", &MakeLobsterPolicy);
  static const LanePolicyFactory lobster_search("lobster_search", &MakeLobsterSearch);
  static const LanePolicyFactory fixed("fixed", &MakeFixed);
  static const Registry<LanePolicyFactory> policies(
      "schedule", {&shared_deadline, &lobster, &lobster_search, &fixed});
  return policies;
}

}  // namespace headrace
