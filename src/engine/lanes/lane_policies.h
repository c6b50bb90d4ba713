#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/registry/registry.h"
#include "engine/lanes/decode_times.h"
#include "engine/lanes/lane_policy.h"

namespace headrace {

// The inputs of a session's policies.
struct LanePolicyRequest {
  LaneBudget budget;
  DecodeTimes* decode_times = nullptr;  // measured by the session; outlives its policies
};

// Makes policies of one kind: a row of LanePolicies().
class LanePolicyFactory {
 public:
  // Makes the policy of each run of a session, one after the other, and outlives them. It keeps
  // what lasts from run to run.
  using MakePolicy = std::function<std::unique_ptr<LanePolicy>()>;
  using OpenPolicies = MakePolicy (*)(const LanePolicyRequest&);

  // `open` may be null: every lane has everything, earliest deadline first.
  LanePolicyFactory(std::string_view name, OpenPolicies open) : name_(name), open_(open) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] bool has_policy() const { return open_ != nullptr; }
  // For a session of several lanes. Null: every lane has everything.
  [[nodiscard]] MakePolicy Open(const LanePolicyRequest& request) const {
    return open_ == nullptr ? nullptr : open_(request);
  }

 private:
  const std::string_view name_;
  const OpenPolicies open_;
};

Registry<LanePolicyFactory>& LanePolicies();

}  // namespace headrace
