#pragma once

#include "headrace/index_writer.h"
#include "headrace/status.h"

namespace headrace::internal {

// Checks every entry of `contents` against the rules of index_rules.h. O(samples).
//
// Errors: InvalidArgument  the first entry that breaks a rule
Status CheckContents(const IndexContents& contents);

}  // namespace headrace::internal
