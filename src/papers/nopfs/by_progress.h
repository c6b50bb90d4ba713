#pragma once

#include <cstdint>
#include <memory>

#include "plan/placement/placement.h"
#include "plan/placement/readers/ask_policy.h"

namespace headrace {

// NoPFS's guess of what other nodes have (Dryden et al., SC'21, 5.2.2): every node has made as many
// inserts as this one. So the placement names another node as the source of a block only if this
// node has made as many inserts as that node needs to reach the block; otherwise storage. It plans
// as `inner` does.
//
// `filled`: the samples that `node` was to insert and that have come, modulo 2^32. `inner` was made
// with numbers_inserts. After 2^31 inserts without a new one of the block it is taken as not there.
std::unique_ptr<Placement> MakeByProgress(std::unique_ptr<Placement> inner, std::uint32_t node,
                                          AskPolicy::Filled filled);

// The row of AskPolicies().
const AskPolicy& ByProgress();

}  // namespace headrace
