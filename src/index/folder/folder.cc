#include "headrace/folder_index.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"
#include "index/folder/folder_report.h"
#include "index/folder/folder_threads.h"
#include "index/folder/folder_walk.h"
#include "index/folder/skip_rules.h"
#include "index/folder/text.h"
#include "index/index_rules.h"

namespace headrace {
namespace {

using internal::CountAndNames;
using internal::FolderReport;
using internal::ListRoot;
using internal::NumberedTexts;
using internal::RootListing;
using internal::SkipHint;
using internal::SkipRules;
using internal::WalkClass;
using internal::Walked;

constexpr char kFoldersKey[] = "folders";
constexpr char kSkipKey[] = "skip";
constexpr char kSkipUnmatchedKey[] = "skip_unmatched";
constexpr char kReportKey[] = "report";

// Absolute, without a slash at its end. Does not resolve links: a link to the newest of several
// datasets keeps that meaning.
Result<std::string> AbsoluteRoot(const std::string& root) {
  std::string path = root;
  if (!root.starts_with('/')) {
    std::error_code error;
    path = (std::filesystem::current_path(error) / root).string();
    if (error) {
      return FailedPrecondition("finding the working folder: {}; change to a folder that exists",
                                error.message());
    }
  }
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Status CheckHasClasses(const RootListing& listing) {
  if (!listing.class_folders.empty()) return Status();
  std::string why = "it has no class folders";
  if (listing.images > 0) why += " but " + Counted(listing.images, "image") + " of its own";
  if (!listing.skipped.empty()) {
    why += " but those that skip= leaves out, " +
           CountAndNames(listing.skipped.size(), listing.skipped);
  }
  return InvalidArgument("{}: put the images of each class into a folder of their own below it",
                         why);
}

Status CheckEveryClassHasImages(const FolderReport& report,
                                const std::vector<std::string>& without) {
  if (without.empty()) return Status();
  std::string why =
      "folders without an image (.jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp), but each folder "
      "is a class: " +
      CountAndNames(without.size(), without);
  for (const char* kind : {"loop", "skipped"}) {
    const auto found = report.entries().find(kind);
    if (found == report.entries().end()) continue;
    why += found->first == "loop" ? "; links to a folder that contains them are not followed, "
                                  : "; left out by skip=, ";
    why += CountAndNames(found->second.count, found->second.names);
  }
  return InvalidArgument(
      "{}: open the folder that holds the classes and nothing else, or leave these out with {} "
      "(headrace index --skip)",
      why, SkipHint(without));
}

void AppendLabel(std::uint64_t label, std::uint64_t count, std::vector<std::byte>& values) {
  for (std::uint64_t i = 0; i < count; ++i) {
    for (int shift = 0; shift < 64; shift += 8) {
      values.push_back(static_cast<std::byte>(label >> shift & 0xff));
    }
  }
}

Result<IndexContents> Build(const std::string& root, const FolderProgress& progress,
                            const std::vector<std::string>& skip, Executor* executor) {
  HEADRACE_ASSIGN_OR_RETURN(SkipRules rules, SkipRules::Parse(skip));
  IndexContents contents;
  HEADRACE_ASSIGN_OR_RETURN(contents.root, AbsoluteRoot(root));
  HEADRACE_ASSIGN_OR_RETURN(const RootListing listing, ListRoot(root, rules));
  HEADRACE_RETURN_IF_ERROR(CheckHasClasses(listing));
  contents.fields.resize(2);
  IndexContents::Field& image = contents.fields[0];
  IndexContents::Field& label = contents.fields[1];
  image.info = {.name = "image", .kind = FieldKind::kImage};
  label.info = {
      .name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true};

  Walked walked;
  walked.folders.emplace_back("", listing.mtime_ns);
  for (const std::string& name : listing.skipped) walked.report.Add("skipped", name);
  std::vector<std::string> without_image;
  for (std::size_t i = 0; i < listing.class_folders.size(); ++i) {
    const std::string& name = listing.class_folders[i];
    const std::size_t before = walked.images.size();
    HEADRACE_RETURN_IF_ERROR(WalkClass(
        contents.root, name, {.progress = progress, .skip = rules, .executor = executor}, walked));
    if (walked.images.size() == before) without_image.push_back(name);
    AppendLabel(i, walked.images.size() - before, label.inline_values);
  }
  HEADRACE_RETURN_IF_ERROR(CheckEveryClassHasImages(walked.report, without_image));
  if (progress && !progress(walked.images.size())) {
    return Status(StatusCode::kCancelled,
                  "cancelled after " + Counted(walked.images.size(), "file"));
  }

  contents.sample_count = walked.images.size();
  image.extents.reserve(walked.images.size());
  for (std::size_t i = 0; i < walked.images.size(); ++i) {
    image.extents.push_back(
        {.object = ObjectId{i}, .range = {.offset = 0, .size = walked.images[i].size}});
  }
  contents.objects = std::move(walked.images);
  contents.attributes = {{"format", "folder"},
                         {"classes", internal::JsonList(listing.class_folders)},
                         {kFoldersKey, internal::JsonList(walked.folders)},
                         {kSkipKey, internal::JsonList(skip)},
                         {kSkipUnmatchedKey, internal::JsonList(rules.Unmatched())},
                         {kReportKey, walked.report.Json()}};
  return contents;
}

// Files beside the class folders, such as the index itself, change the root's mtime but no sample.
bool HasClassFoldersOf(const std::string& root, const NumberedTexts& folders, SkipRules& skip) {
  const Result<RootListing> listing = ListRoot(root, skip);
  if (!listing.ok()) return false;
  std::vector<std::string> noted;
  for (const auto& [path, mtime_ns] : folders) {
    if (!path.empty() && path.find('/') == std::string::npos) noted.push_back(path);
  }
  return listing.value().class_folders == noted;
}

}  // namespace

Result<IndexContents> BuildFolderIndex(const std::string& root, const FolderProgress& progress,
                                       const std::vector<std::string>& skip, Executor* executor) {
  Result<IndexContents> contents = Build(root, progress, skip, executor);
  if (contents.ok()) return contents;
  return contents.status().WithContext("indexing folder " + internal::Quoted(root));
}

Result<IndexContents> BuildFolderIndex(const std::string& root, const FolderProgress& progress,
                                       const std::vector<std::string>& skip) {
  return BuildFolderIndex(root, progress, skip, /*executor=*/nullptr);
}

bool FolderIndexIsCurrent(const Index& index) {
  const auto folders = internal::ParseNumberedTexts(FindAttribute(index, kFoldersKey));
  const auto skip = internal::ParseTexts(FindAttribute(index, kSkipKey));
  if (!folders || !skip) return false;  // Indexes of earlier versions have no report either.
  Result<SkipRules> rules = SkipRules::Parse(*skip);
  if (!rules.ok()) return false;
  for (const auto& [path, mtime_ns] : *folders) {
    const bool is_root = path.empty();
    const std::string folder = is_root ? index.root() : index.root() + "/" + path;
    if (internal::FolderMtimeNs(folder) == mtime_ns) continue;
    if (!is_root || !HasClassFoldersOf(index.root(), *folders, rules.value())) return false;
  }
  return !folders->empty();
}

}  // namespace headrace
