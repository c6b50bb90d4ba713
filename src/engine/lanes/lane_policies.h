#pragma once

#include <cstdint>
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

  // What idle decode threads are for.
  enum class IdleThreads : std::uint8_t { kWait, kRead };

  // `open` may be null: every lane has everything, earliest deadline first.
  LanePolicyFactory(std::string_view name, OpenPolicies open, IdleThreads idle = IdleThreads::kWait)
      : name_(name), open_(open), idle_(idle) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  // Whether its shares may have more reads than the budget, one for each thread that decodes
  // nothing.
  [[nodiscard]] bool idle_threads_read() const { return idle_ == IdleThreads::kRead; }
  // For a session of several lanes. Null: every lane has everything.
  [[nodiscard]] MakePolicy Open(const LanePolicyRequest& request) const {
    return open_ == nullptr ? nullptr : open_(request);
  }

 private:
  const std::string_view name_;
  const OpenPolicies open_;
  const IdleThreads idle_;
};

Registry<LanePolicyFactory>& LanePolicies();

}  // namespace headrace
