#pragma once

// Several indexes as one: the samples of the first, then those of the second, and so on. Nothing is
// copied: a small index file without samples names the others, and Index::Open() of it opens them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace {

struct JoinedPart {
  std::string name;  // for messages; unique
  std::string path;  // of the index file
  // Fields whose names differ: the part's own name, and that in the joined index.
  std::vector<std::pair<std::string, std::string>> renames;
};

struct JoinOptions {
  std::vector<JoinedPart> parts;
  // Not empty: the name of a field with the number of each sample's part, int64.
  std::string part_field;
  // Object names begin with what their store must know of them, up to the first '/'; then follows
  // the path below the root.
  bool prefixed_names = false;
};

// Writes the index file `path`, by which other processes open the joined index, too. The joined
// index has the fields that all parts have, in the order of the first. Their kinds must be equal;
// checksums are left out unless all parts have them. It has no blocks. Its root is the deepest
// folder above all parts' roots.
//
// Errors: InvalidArgument     no part; a field that is renamed and does not exist, or to a name
// that
//                             is taken; a field of another kind in a part; no field that all have;
//                             roots of different stores; a part that is joined itself
//         those of Index::Open and WriteIndex
Status WriteJoinedIndex(const JoinOptions& options, const std::string& path);

namespace internal {

// Whether an index file stands for others.
bool IsJoined(const Index& file);

// Errors: DataLoss            the list of parts is damaged
//         FailedPrecondition  a part has changed since they were joined
//         those of WriteJoinedIndex
Result<std::shared_ptr<const Index>> OpenJoinedIndex(const Index& file, const std::string& path);

}  // namespace internal
}  // namespace headrace
