#pragma once

#include <memory>
#include <string_view>

#include "base/registry/registry.h"
#include "engine/lanes/lane_policy.h"

namespace headrace {

// What a policy is made from.
struct LanePolicyRequest {
  LaneBudget budget;
  DecodeThreads* decode_threads = nullptr;  // outlives the policy
};

// Makes policies of one kind; a row of the table in lane_policies.cc.
class LanePolicyFactory {
 public:
  using MakePolicy = std::unique_ptr<LanePolicy> (*)(const LanePolicyRequest&);

  // `make` may be null: every lane has everything, earliest deadline first.
  LanePolicyFactory(std::string_view name, MakePolicy make) : name_(name), make_(make) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  // For a run of several lanes. Null: every lane has everything.
  [[nodiscard]] std::unique_ptr<LanePolicy> Make(const LanePolicyRequest& request) const {
    return make_ == nullptr ? nullptr : make_(request);
  }

 private:
  const std::string_view name_;
  const MakePolicy make_;
};

const Registry<LanePolicyFactory>& LanePolicies();

// Those of other folders lie in the files of their policies.
const LanePolicyFactory& LobsterPolicyFactory();
const LanePolicyFactory& LobsterSearchPolicyFactory();

}  // namespace headrace
