#pragma once

#include <string>

#include "headrace/status.h"
#include "node/protocol/messages.h"

namespace headrace {

// Checks a rank's request by itself.
//
// Errors: InvalidArgument  local rank, local ranks, rank and world size contradict each other
Status CheckOpen(const OpenSession& open);

// Compares the requests of two ranks of one job: everything except their ranks must be equal.
//
// Errors: FailedPrecondition  they differ; the message gives the option and both values
Status CompareOpen(const OpenSession& first, const OpenSession& other);

// A request without the options that may differ between nodes: paths, threads, measurements.
OpenSession ForOtherNodes(OpenSession open);

// Compares the requests of two nodes, both as ForOtherNodes() returns them.
//
// Errors: FailedPrecondition  they differ; the message gives the option and both values
Status CompareNodes(const OpenSession& own, const OpenSession& other);

}  // namespace headrace
