#pragma once

// Rules that leave files and folders of an image folder out of its index. Internal to index/.

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "index/folder/folder_report.h"

namespace headrace::internal {

// Patterns and kinds, as given in `skip=`.
//
// A pattern without '/' matches the name of a file or folder anywhere below the root. A pattern
// with '/' matches the whole path below the root; a '/' at its beginning or end has no other
// meaning. '*' matches any characters but '/', '?' one of them. A folder is left out with
// everything in it. A kind begins with ':': one of the findings (":empty", ":broken_link",
// ":special", ":unreadable"), ":undecodable" for these and all formats that are not decoded, or
// ":hidden".
//
// Thread safety: thread-compatible: const calls may be concurrent.
class SkipRules {
 public:
  // Errors: InvalidArgument  an empty pattern or an unknown kind; the message lists the known ones
  static Result<SkipRules> Parse(const std::vector<std::string>& skip);

  // No rules: leaves nothing out.
  SkipRules() = default;

  // Whether `path`, below the root, is left out. If so, marks every pattern that matches it, or
  // that could match a path below it.
  [[nodiscard]] bool LeavesOut(std::string_view path);

  // As LeavesOut(), without marking: for paths that are not part of the dataset anyway.
  [[nodiscard]] bool Matches(std::string_view path) const;

  [[nodiscard]] bool LeavesOut(FileFinding finding) const;

  // The patterns that were not marked so far, as given. Never includes kinds: a folder without such
  // files is normal.
  [[nodiscard]] std::vector<std::string> Unmatched() const;

 private:
  struct Pattern {
    std::size_t position = 0;  // in given_
    std::string text;          // without '/' at its ends
    bool whole_path = false;

    [[nodiscard]] bool Matches(std::string_view path) const;
    [[nodiscard]] bool MayMatchBelow(std::string_view path) const;
  };

  std::vector<std::string> given_;
  std::vector<bool> noted_;        // of each: marked; kinds always are
  std::vector<Pattern> patterns_;  // with wildcards, or names
  // Whole paths without wildcards: a list of broken files has thousands. Their positions in given_.
  std::map<std::string, std::size_t, std::less<>> paths_;
  std::vector<FileFinding> findings_;
  bool hidden_ = false;
};

// Whether `pattern` matches the whole of `text`.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace headrace::internal
