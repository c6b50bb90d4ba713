#pragma once

#include <string>
#include <vector>

#include "base/executor.h"
#include "headrace/folder_index.h"
#include "headrace/index_writer.h"
#include "headrace/status.h"

namespace headrace {

// As BuildFolderIndex() of headrace/folder_index.h, with the same result. Threads of `executor`
// read the status of files, many at a time; null: the calling thread does. It outlives the call.
Result<IndexContents> BuildFolderIndex(const std::string& root, const FolderProgress& progress,
                                       const std::vector<std::string>& skip, Executor* executor);

}  // namespace headrace
