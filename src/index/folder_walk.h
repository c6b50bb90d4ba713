#pragma once

// Walks a folder of class folders as Python's os.scandir and os.walk(followlinks=True) do. Internal
// to index/.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "index/folder.h"
#include "index/text.h"

namespace headrace::internal {

struct RootListing {
  std::int64_t mtime_ns = 0;
  std::vector<std::string> class_folders;  // sorted
  std::uint64_t images = 0;                // that lie beside them and belong to no class
};

// Errors: NotFound            no such folder
//         InvalidArgument     not a folder
//         FailedPrecondition  it cannot be read
Result<RootListing> ListRoot(const std::string& root);

// Nothing if there is no folder at `path`.
std::optional<std::int64_t> FolderMtimeNs(const std::string& path);

// What a walk found, class by class.
struct Walked {
  std::vector<IndexContents::Object> images;  // names below the root, in order
  NumberedTexts folders;                      // path below the root and mtime in nanoseconds
  std::uint64_t empty_images = 0;             // how many have zero bytes
  std::vector<std::string> empty_names;       // the first few of them
};

// Adds the images and folders of class folder `name` of `root`.
//
// Errors: FailedPrecondition  a file or folder that cannot be read, or a link to a folder around it
//         Cancelled           `progress` returned false
Status WalkClass(const std::string& root, const std::string& name, const FolderProgress& progress,
                 Walked& walked);

// "3: 'a', 'b', 'c'", with at most the first few names.
std::string CountAndNames(std::uint64_t count, const std::vector<std::string>& names);
inline constexpr std::size_t kNamesShown = 5;

}  // namespace headrace::internal
