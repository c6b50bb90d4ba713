#pragma once

#include <string>

#include "base/status.h"
#include "node/protocol/messages.h"

namespace headrace {

// Checks what a rank asks of its node for itself.
//
// Errors: InvalidArgument  local rank, local ranks, rank and world size that do not fit
Status CheckOpen(const OpenJob& open);

// What two ranks of one job ask for: all but their ranks must be equal.
//
// Errors: FailedPrecondition  what differs, and both values
Status CompareOpen(const OpenJob& first, const OpenJob& other);

}  // namespace headrace
