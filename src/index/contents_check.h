#pragma once

#include "base/status.h"
#include "index/index_writer.h"

namespace headrace::internal {

// Whether `contents` keep the rules of index_rules.h, every entry of them. O(samples).
//
// Errors: InvalidArgument  naming the first entry that does not
Status CheckContents(const IndexContents& contents);

}  // namespace headrace::internal
