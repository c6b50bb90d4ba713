#pragma once

// Which files and folders of a folder of images are left out of its index. Internal to index/.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "index/folder_report.h"

namespace headrace::internal {

// Patterns and kinds, as `skip=` gives them.
//
// A pattern without '/' matches the name of a file or folder anywhere below the root. A pattern
// with
// '/' matches the whole path below the root; a '/' at its beginning or end has no other meaning.
// '*' matches any characters but '/', '?' one of them. A folder is left out with everything in it.
// A kind begins with ':': one of the findings (":empty", ":broken_link", ":special",
// ":unreadable"), ":undecodable" for these and all formats that are not decoded, or ":hidden".
//
// Thread safety: as for an int.
class SkipRules {
 public:
  // Errors: InvalidArgument  an empty pattern, or an unknown kind: named, with those known
  static Result<SkipRules> Parse(const std::vector<std::string>& skip);

  // Leaves nothing out.
  SkipRules() = default;

  // Whether `path`, below the root, is left out. If so, notes every pattern that matches it, or of
  // what may lie below it.
  [[nodiscard]] bool LeavesOut(std::string_view path);

  // The same, noting nothing: for what is no part of the dataset anyway.
  [[nodiscard]] bool Matches(std::string_view path) const;

  [[nodiscard]] bool LeavesOut(FileFinding finding) const;

  // The patterns that were not noted so far, as they were given. Kinds are never among them: a
  // folder without such files is as it should be.
  [[nodiscard]] std::vector<std::string> Unmatched() const;

 private:
  struct Pattern {
    std::string given;
    std::string text;  // without '/' at its ends
    bool whole_path = false;
    bool noted = false;

    [[nodiscard]] bool Matches(std::string_view path) const;
    [[nodiscard]] bool MayMatchBelow(std::string_view path) const;
  };

  std::vector<Pattern> patterns_;
  std::vector<FileFinding> findings_;
  bool hidden_ = false;
};

// Whether `pattern` matches the whole of `text`.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace headrace::internal
