#pragma once

// Findings of a folder walk that a user should know before training. Internal to index/.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::internal {

// Why a file with the name of an image cannot be decoded. Index files and skip= use these names.
enum class FileFinding : std::uint8_t {
  kNone,
  kFormat,      // its name has a format that src/codec does not decode: .bmp, .ppm, ...
  kEmpty,       // zero bytes
  kBrokenLink,  // a link to nothing, or to itself
  kSpecial,     // not a regular file: a pipe, a socket, a device
  kUnreadable,  // its status cannot be read
};

// The number of findings of each kind, and their first few names in the order of the walk. The
// kinds are the names of FileFinding (for kFormat the extension, in lower case), "hidden" (samples
// whose path below the root has a part that begins with '.'), "loop" (links to a folder that
// contains them, which are not followed) and "skipped" (files and folders left out by skip=).
//
// Thread safety: thread-compatible: const calls may be concurrent.
class FolderReport {
 public:
  static constexpr std::size_t kNamesShown = 5;

  struct Entry {
    std::uint64_t count = 0;
    std::vector<std::string> names;  // at most kNamesShown
  };

  void Add(std::string_view kind, std::string_view name);

  [[nodiscard]] const std::map<std::string, Entry, std::less<>>& entries() const {
    return entries_;
  }

  // [[kind, count, [name, ...]], ...], by kind. "[]" if there are no findings.
  [[nodiscard]] std::string Json() const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

// The kind of a finding in FolderReport: ".bmp", "empty", ... `name` is the file's.
std::string KindOf(FileFinding finding, std::string_view name);

// Whether src/codec decodes the format that the extension of `name`, an image's, stands for.
bool IsDecodedByName(std::string_view name);

// Whether a part of the path begins with '.'.
bool IsHidden(std::string_view path);

}  // namespace headrace::internal
