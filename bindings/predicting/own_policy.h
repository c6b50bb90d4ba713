#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <optional>

#include "sim/published/policy.h"

namespace headrace::bindings {

// What Python calls them, by SampleFetch::From.
inline constexpr std::array<const char*, SampleFetch::kKinds> kFromNames = {
    "tier", "peer", "storage", "on_demand", "none"};

// A policy of Python's. `prepare` receives the streams of the nodes, the steps of an epoch and the
// rates, and returns a headrace.simulation.own.Prepared.
//
// `raised`, which outlives the policy: the first exception that Python raises, in any call. Python
// is not called again after it; the caller ends the run before its next step.
//
// The GIL must be held: when the policy is made, while it runs, and when it is destroyed.
std::unique_ptr<PublishedPolicy> MakeOwnPolicy(const PolicyRequest& request,
                                               const nanobind::object& prepare,
                                               std::optional<nanobind::python_error>& raised);

// The classes that a policy of Python's sees.
void BindOwnPolicy(nanobind::module_& module);

}  // namespace headrace::bindings
