#pragma once

#include <memory>

#include "sim/published/policy.h"

namespace headrace {

// CorgiPile (Xu et al., SIGMOD'22): each epoch nodes read blocks of 10 MB in random order, each
// block by one read, and shuffle what a buffer has: a tenth of a node's samples, or what staging
// has room for. It is filled while the one before is used.
std::unique_ptr<PublishedPolicy> MakePublishedCorgiPile(const PolicyRequest& request);

}  // namespace headrace
