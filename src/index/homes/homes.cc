#include "index/homes/homes.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "base/format/errors.h"
#include "index/folder/file_status.h"

namespace headrace {
namespace {

constexpr std::string_view kPrefix = "home-";
// Enough for every file of most packs, and half a second on storage that takes 0.5 ms for each.
constexpr std::uint64_t kLookedAtMax = 1024;

std::string HomePath(const Index& index, std::uint32_t home) {
  return index.root() + "/" + HomeFolder(home);
}

// Errors: FailedPrecondition  a home below the highest has no object
Status CheckNoGap(const Index& index, std::vector<std::uint32_t> homes) {
  std::sort(homes.begin(), homes.end());
  homes.erase(std::unique(homes.begin(), homes.end()), homes.end());
  for (std::uint32_t expected = 0; expected < homes.size(); ++expected) {
    if (homes[expected] == expected) continue;
    return FailedPrecondition(
        "homes of {}: it has files in {}, but none in {}: homes are numbered 0, 1, 2, ... without "
        "a "
        "gap; rename the folder and index the dataset again",
        index.root(), HomeFolder(homes[expected]), HomeFolder(expected));
  }
  return Status();
}

// Errors: FailedPrecondition, Unavailable  as HomesPresent
Result<bool> FolderIsHere(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) return true;
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (status.type() == std::filesystem::file_type::none) {
    return Status(StatusCode::kUnavailable,
                  "looking for " + path + ": " + ErrnoText(error.value()));
  }
  return FailedPrecondition(
      "looking for {}: it is no folder; move it elsewhere, or copy the home there", path);
}

// What is wrong with a file; empty: it is as indexed.
std::string FaultOf(const std::string& path, const ObjectInfo& indexed) {
  const FileStatus found = StatusOf(AT_FDCWD, path.c_str());
  switch (found.type) {
    case FileType::kMissing:
      return "no such file";
    case FileType::kOther:
      return "not a regular file";
    case FileType::kUnreadable:
      return "its size cannot be read";
    case FileType::kRegular:
      break;
  }
  if (found.size != indexed.size) {
    return fmt::format("it has {} bytes, {} when it was indexed", found.size, indexed.size);
  }
  if (indexed.mtime_ns != 0 && found.mtime_ns != indexed.mtime_ns) {
    return "it was changed after it was indexed; copy it with its time (rsync -a, cp -p)";
  }
  return {};
}

// Errors: FailedPrecondition  the file is not there as indexed; those of Index::object()
Status CheckFile(const Index& index, ObjectId object, std::uint32_t home) {
  HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo info, index.object(object));
  const std::string path = index.root() + "/" + std::string(info.name);
  const std::string fault = FaultOf(path, info);
  if (fault.empty()) return Status();
  return FailedPrecondition(
      "home {} is not whole on this node: {}: {}; copy {} again, or move it elsewhere if this node "
      "does not read it",
      home, path, fault, HomePath(index, home));
}

}  // namespace

std::uint32_t HomeFolderOf(std::string_view object_name) {
  const std::size_t end = object_name.find('/');
  if (!object_name.starts_with(kPrefix) || end == object_name.npos) return kNoHomeFolder;
  const std::string_view digits = object_name.substr(kPrefix.size(), end - kPrefix.size());
  if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) return kNoHomeFolder;
  std::uint32_t home = 0;
  const char* const last = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), last, home);
  return error == std::errc() && stopped == last ? home : kNoHomeFolder;
}

std::string HomeFolder(std::uint32_t home) { return std::string(kPrefix) + std::to_string(home); }

Result<Homes> HomesOf(const Index& index) {
  Homes homes;
  for (std::uint64_t object = 0; object < index.object_count(); ++object) {
    HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo info, index.object(ObjectId{object}));
    const std::uint32_t home = HomeFolderOf(info.name);
    if (home == kNoHomeFolder) return Homes();
    homes.of_objects.push_back(home);
  }
  if (homes.of_objects.empty()) return homes;
  HEADRACE_RETURN_IF_ERROR(CheckNoGap(index, homes.of_objects));
  homes.count = *std::max_element(homes.of_objects.begin(), homes.of_objects.end()) + 1;
  return homes.count == 1 ? Homes() : homes;
}

Result<std::uint32_t> HomeOfSample(const Index& index, const Homes& homes, SampleId sample) {
  std::size_t first = index.fields().size();  // field with an extent
  std::uint32_t home = 0;
  for (std::size_t field = 0; field < index.fields().size(); ++field) {
    if (index.fields()[field].is_inline) continue;
    HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index.extent(field, sample));
    const std::uint32_t found = homes.of(extent.object);
    if (first == index.fields().size()) {
      first = field;
      home = found;
    } else if (found != home) {
      return FailedPrecondition(
          "homes of {}: sample {} has field '{}' at home {}, but '{}' at home {}: a sample lies at "
          "one home; move its files to one home folder, or pack the dataset",
          index.root(), Raw(sample), index.fields()[first].name, home, index.fields()[field].name,
          found);
    }
  }
  return home;
}

Result<std::vector<std::uint32_t>> HomesOfSamples(const Index& index, const Homes& homes) {
  std::vector<std::uint32_t> found(index.sample_count(), 0);
  if (homes.count == 1) return found;
  for (std::uint64_t sample = 0; sample < found.size(); ++sample) {
    HEADRACE_ASSIGN_OR_RETURN(found[sample], HomeOfSample(index, homes, SampleId{sample}));
  }
  return found;
}

std::vector<Result<bool>> LookAtHomes(const Index& index, const Homes& homes) {
  std::vector<Result<bool>> found(homes.count, true);
  if (homes.count == 1 || !index.root().starts_with('/')) return found;
  for (std::uint32_t home = 0; home < homes.count; ++home) {
    found[home] = FolderIsHere(HomePath(index, home));
  }
  // Every `step`th file of each home, from its first on.
  const std::uint64_t step = (index.object_count() + kLookedAtMax - 1) / kLookedAtMax;
  std::vector<std::uint64_t> seen(homes.count, 0);
  for (std::uint64_t object = 0; object < index.object_count(); ++object) {
    const std::uint32_t home = homes.of(ObjectId{object});
    const bool is_here = found[home].ok() && found[home].value();
    if (seen[home]++ % step != 0 || !is_here) continue;
    const Status status = CheckFile(index, ObjectId{object}, home);
    if (!status.ok()) found[home] = status;
  }
  return found;
}

Result<std::vector<bool>> HomesPresent(const Index& index, const Homes& homes) {
  std::vector<bool> present;
  for (const Result<bool>& home : LookAtHomes(index, homes)) {
    if (!home.ok()) return home.status();
    present.push_back(home.value());
  }
  return present;
}

}  // namespace headrace
