#pragma once

// Walks a folder of class folders as Python's os.scandir and os.walk(followlinks=True) do. Internal
// to index/.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/folder_index.h"
#include "headrace/status.h"
#include "index/folder/folder_report.h"
#include "index/folder/skip_rules.h"
#include "index/folder/text.h"

namespace headrace {

class Executor;

namespace internal {

struct RootListing {
  std::int64_t mtime_ns = 0;
  std::vector<std::string> class_folders;  // sorted
  std::vector<std::string> skipped;        // folders that `skip` excludes, sorted
  std::uint64_t images = 0;                // images in the root itself: they belong to no class
};

// Errors: NotFound            no such folder
//         InvalidArgument     not a folder
//         FailedPrecondition  the folder, or an entry that may be a folder, cannot be read
Result<RootListing> ListRoot(const std::string& root, SkipRules& skip);

// std::nullopt if `path` is not a folder.
std::optional<std::int64_t> FolderMtimeNs(const std::string& path);

// The images and folders found by a walk, class by class.
struct Walked {
  std::vector<IndexContents::Object> images;  // names below the root, in order
  NumberedTexts folders;                      // path below the root and mtime in nanoseconds
  FolderReport report;
};

struct WalkOptions {
  const FolderProgress& progress;
  SkipRules& skip;
  Executor* executor;  // nullptr: the calling thread reads the status of files
};

// Adds the images and folders of class folder `name` of `root` to `walked`. An image file that
// cannot be read (a broken link, a pipe, a file whose status cannot be read) is added with size 0
// and time 0: ids then equal ImageFolder's, and reading the sample is an error.
//
// Errors: FailedPrecondition  a folder that cannot be read
//         Cancelled           `progress` returned false
Status WalkClass(const std::string& root, const std::string& name, const WalkOptions& options,
                 Walked& walked);

// "3: 'a', 'b', 'c'", with at most the first few names.
std::string CountAndNames(std::uint64_t count, const std::vector<std::string>& names);

// skip=["a", "b"], with at most the first few names.
std::string SkipHint(const std::vector<std::string>& names);

}  // namespace internal
}  // namespace headrace
