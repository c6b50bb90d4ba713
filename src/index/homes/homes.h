#pragma once

// Homes: the nodes on whose own disks the objects of a dataset lie (docs/design/homes.md). The
// index lies on every node; the objects in the folders home-0, home-1, ... below its root lie on
// nodes 0, 1, ... Storage that all nodes share may hold all of these folders.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace {

// The number in "home-7/..."; kNoHomeFolder of a name that begins otherwise.
inline constexpr std::uint32_t kNoHomeFolder = 0xffff'ffff;
std::uint32_t HomeFolderOf(std::string_view object_name);

// "home-7"
std::string HomeFolder(std::uint32_t home);

// The home of each object. One home: the dataset lies in one place, wherever that is.
struct Homes {
  std::uint32_t count = 1;                // homes 0, 1, ..., count - 1 have objects
  std::vector<std::uint32_t> of_objects;  // by object; empty if there is one home

  [[nodiscard]] std::uint32_t of(ObjectId object) const {
    return of_objects.empty() ? 0 : of_objects[Raw(object)];
  }
};

// The homes of a dataset, by the names of its objects. A dataset of which some objects are in no
// home folder has one home. Takes O(objects).
//
// Errors: FailedPrecondition  all objects are in home folders, but the numbers of these have a gap
//         those of Index::object()
Result<Homes> HomesOf(const Index& index);

// The home of a sample: that of its objects. 0 if all its fields are inline.
//
// Errors: FailedPrecondition  its fields lie at different homes
//         those of Index::extent()
Result<std::uint32_t> HomeOfSample(const Index& index, const Homes& homes, SampleId sample);

// The home of each sample. Takes O(samples), unless there is one home.
//
// Errors: those of HomeOfSample
Result<std::vector<std::uint32_t>> HomesOfSamples(const Index& index, const Homes& homes);

// Whether each home can be read on this node. A home is here if its folder is, below the root of
// the index. Looks at the folders and at about 1,024 files in them, spread over all: opens none. Of
// a dataset of one home, or whose root is no path: true, without a look.
//
// Errors of a home: FailedPrecondition  its folder is here, but not whole: a file is missing, or is
//                                       not as indexed; or it is no folder
//                   Unavailable         the system does not say what is there
//                   those of Index::object()
std::vector<Result<bool>> LookAtHomes(const Index& index, const Homes& homes);

// The same of all homes; the error of the first home that has one.
Result<std::vector<bool>> HomesPresent(const Index& index, const Homes& homes);

}  // namespace headrace
