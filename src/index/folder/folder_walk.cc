#include "index/folder/folder_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/format/errors.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "index/folder/file_status.h"
#include "index/index_rules.h"

namespace headrace::internal {
namespace {

constexpr std::uint64_t kFilesBetweenReports = 1024;
constexpr std::size_t kFilesAtOnce = 4096;  // whose status is read by several threads

constexpr std::array<std::string_view, 9> kImageExtensions = {
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

// Python lowers all of Unicode, but no character beyond ASCII becomes a letter of these extensions.
bool HasImageExtension(std::string_view name) {
  const auto equal_lowered = [](char c, char lower) {
    return (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) == lower;
  };
  return std::any_of(kImageExtensions.begin(), kImageExtensions.end(), [&](std::string_view end) {
    return name.size() >= end.size() &&
           std::equal(name.end() - static_cast<std::ptrdiff_t>(end.size()), name.end(), end.begin(),
                      equal_lowered);
  });
}

std::int64_t MtimeNs(const struct stat& info) {
  return info.st_mtim.tv_sec * kNsPerSecond + info.st_mtim.tv_nsec;
}

Status CannotRead(const char* what, const std::string& path, int error) {
  return FailedPrecondition("{} {} cannot be read: {}; leave it out with {} if you do not need it",
                            what, Quoted(path), ErrnoText(error), SkipHint({path}));
}

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

// A folder open for listing. Takes its mtime before its entries: an entry that is added later then
// changes the mtime that was noted.
struct OpenFolder {
  std::unique_ptr<DIR, DirCloser> dir;
  struct stat info = {};
};

// `path` below `at`, for messages and for opening; "." for `at` itself.
Result<OpenFolder> OpenFolderAt(int at, const std::string& path) {
  UniqueFd fd(openat(at, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  OpenFolder folder;
  if (!fd || fstat(fd.get(), &folder.info) != 0) return CannotRead("folder", path, errno);
  folder.dir.reset(fdopendir(fd.get()));
  if (!folder.dir) return CannotRead("folder", path, errno);
  (void)fd.Release();  // DIR owns it.
  return folder;
}

// Calls `visit(entry)` for each entry but "." and "..", until it returns an error.
Status ForEachEntry(const OpenFolder& folder, const std::string& path,
                    const std::function<Status(const dirent&)>& visit) {
  for (;;) {
    errno = 0;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): unsafe only for a DIR that threads share.
    const dirent* const entry = readdir(folder.dir.get());
    if (entry == nullptr) {
      return errno == 0 ? Status() : CannotRead("folder", path, errno);
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    HEADRACE_RETURN_IF_ERROR(visit(*entry));
  }
}

std::string Joined(const std::string& folder, const char* name) {
  return folder.empty() ? name : folder + "/" + name;
}

// Whether the entry is a folder, or a link to one. A broken link is not.
Result<bool> IsFolder(const OpenFolder& folder, const std::string& path, const dirent& entry) {
  if (entry.d_type == DT_DIR) return true;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return false;
  struct stat info = {};
  if (fstatat(dirfd(folder.dir.get()), entry.d_name, &info, 0) == 0) return S_ISDIR(info.st_mode);
  // A link to nothing is not a folder; its name decides whether it is a sample.
  const bool broken =
      errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == ENAMETOOLONG;
  if (broken || HasImageExtension(entry.d_name)) return false;
  return CannotRead("file", Joined(path, entry.d_name), errno);
}

// A file with the name of an image.
struct FoundImage {
  IndexContents::Object object;
  FileFinding finding = FileFinding::kNone;
};

FileFinding FindingOf(const FileStatus& status, std::string_view name) {
  switch (status.type) {
    case FileType::kMissing:
      return FileFinding::kBrokenLink;
    case FileType::kUnreadable:
      return FileFinding::kUnreadable;
    case FileType::kOther:
      return FileFinding::kSpecial;
    case FileType::kRegular:
      break;
  }
  if (status.size == 0) return FileFinding::kEmpty;
  return IsDecodedByName(name) ? FileFinding::kNone : FileFinding::kFormat;
}

// One class folder and everything below it.
class ClassWalk {
 public:
  ClassWalk(int root, const struct stat& root_info, const WalkOptions& options, Walked& walked)
      : root_(root), root_info_(root_info), options_(options), walked_(walked) {}

  Status Run(const std::string& name) {
    folders_.push_back({.path = name});
    // The vector grows during the walk. Not recursive, and one folder open at a time: any depth
    // works.
    for (std::size_t i = 0; i < folders_.size(); ++i) HEADRACE_RETURN_IF_ERROR(Visit(i));
    std::sort(folders_.begin(), folders_.end(),
              [](const Folder& a, const Folder& b) { return TextLess(a.path, b.path); });
    for (Folder& folder : folders_) Add(folder);
    return Status();
  }

 private:
  struct Folder {
    std::string path;                        // below the root
    std::optional<std::size_t> parent = {};  // in folders_; none: the root
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t mtime_ns = 0;
    bool is_loop = false;                   // a link to a folder that contains it
    std::vector<FoundImage> images = {};    // names below this folder
    std::vector<std::string> skipped = {};  // names below this folder
  };

  Status Visit(std::size_t position) {
    const std::string path = folders_[position].path;
    HEADRACE_ASSIGN_OR_RETURN(const OpenFolder folder, OpenFolderAt(root_, path));
    folders_[position].device = folder.info.st_dev;
    folders_[position].inode = folder.info.st_ino;
    folders_[position].mtime_ns = MtimeNs(folder.info);
    if (IsLoop(position)) {  // Its files are walked already; following it would not end.
      folders_[position].is_loop = true;
      return Status();
    }
    std::vector<std::string> images;
    HEADRACE_RETURN_IF_ERROR(ForEachEntry(folder, path, [&](const dirent& entry) -> Status {
      const std::string below = Joined(path, entry.d_name);
      const bool skipped = options_.skip.LeavesOut(below);
      bool is_folder = entry.d_type == DT_DIR;
      if (!skipped) {  // Entries that are left out need not be readable.
        HEADRACE_ASSIGN_OR_RETURN(is_folder, IsFolder(folder, path, entry));
      }
      if (!is_folder && !HasImageExtension(entry.d_name)) return Status();
      if (skipped) {
        folders_[position].skipped.emplace_back(entry.d_name);
        return Status();
      }
      if (is_folder) {
        folders_.push_back({.path = below, .parent = position});
      } else {
        images.emplace_back(entry.d_name);
      }
      return Status();
    }));
    return AddImages(dirfd(folder.dir.get()), position, images);
  }

  // Some at a time: progress() may cancel between them.
  Status AddImages(int folder, std::size_t position, std::span<std::string> names) {
    while (!names.empty()) {
      const std::span<std::string> some = names.first(std::min(names.size(), kFilesAtOnce));
      const std::vector<FileStatus> status = StatusOfAll(folder, some, options_.executor);
      for (std::size_t i = 0; i < some.size(); ++i) {
        HEADRACE_RETURN_IF_ERROR(AddImage(position, std::move(some[i]), status[i]));
      }
      names = names.subspan(some.size());
    }
    return Status();
  }

  Status AddImage(std::size_t position, std::string name, const FileStatus& status) {
    const FileFinding finding = FindingOf(status, name);
    if (options_.skip.LeavesOut(finding)) {
      folders_[position].skipped.push_back(std::move(name));
      return Status();
    }
    folders_[position].images.push_back(
        {.object = {.name = std::move(name), .size = status.size, .mtime_ns = status.mtime_ns},
         .finding = finding});
    ++found_;
    const std::uint64_t files = walked_.images.size() + found_;
    if (options_.progress && files % kFilesBetweenReports == 0 && !options_.progress(files)) {
      return {StatusCode::kCancelled, "cancelled after " + Counted(files, "file")};
    }
    return Status();
  }

  [[nodiscard]] bool IsLoop(std::size_t position) const {
    const Folder& folder = folders_[position];
    for (auto at = folder.parent; at; at = folders_[*at].parent) {
      if (folders_[*at].inode == folder.inode && folders_[*at].device == folder.device) return true;
    }
    return root_info_.st_ino == folder.inode && root_info_.st_dev == folder.device;
  }

  void Add(Folder& folder) {
    if (folder.is_loop) {
      walked_.report.Add("loop", folder.path);
      return;
    }
    std::sort(folder.images.begin(), folder.images.end(),
              [](const auto& a, const auto& b) { return TextLess(a.object.name, b.object.name); });
    for (FoundImage& image : folder.images) {
      std::string& name = image.object.name;
      const std::string kind = KindOf(image.finding, name);
      name.insert(0, folder.path + "/");
      if (!kind.empty()) walked_.report.Add(kind, name);
      if (IsHidden(name)) walked_.report.Add("hidden", name);
      walked_.images.push_back(std::move(image.object));
    }
    std::sort(folder.skipped.begin(), folder.skipped.end(), TextLess);
    for (const std::string& name : folder.skipped) {
      walked_.report.Add("skipped", folder.path + "/" + name);
    }
    walked_.folders.emplace_back(std::move(folder.path), folder.mtime_ns);
  }

  const int root_;
  const struct stat& root_info_;
  const WalkOptions& options_;
  Walked& walked_;
  std::vector<Folder> folders_;
  std::uint64_t found_ = 0;
};

}  // namespace

std::optional<std::int64_t> FolderMtimeNs(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return std::nullopt;
  return MtimeNs(info);
}

Result<RootListing> ListRoot(const std::string& root, SkipRules& skip) {
  struct stat info = {};
  if (stat(root.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return CannotRead("folder", root, errno);
    return Status(StatusCode::kNotFound, "no such folder");
  }
  if (!S_ISDIR(info.st_mode)) {
    return InvalidArgument("it is a file: name the folder that holds the class folders");
  }
  HEADRACE_ASSIGN_OR_RETURN(const OpenFolder folder, OpenFolderAt(AT_FDCWD, root));
  RootListing listing;
  listing.mtime_ns = MtimeNs(folder.info);
  HEADRACE_RETURN_IF_ERROR(ForEachEntry(folder, root, [&](const dirent& entry) -> Status {
    // Files beside the class folders are not indexed: no pattern leaves them out.
    const std::string_view name = entry.d_name;
    const bool skipped = entry.d_type == DT_REG ? skip.Matches(name) : skip.LeavesOut(name);
    bool is_folder = entry.d_type == DT_DIR;
    if (!skipped) {
      HEADRACE_ASSIGN_OR_RETURN(is_folder, IsFolder(folder, "", entry));
    }
    if (is_folder) {
      (skipped ? listing.skipped : listing.class_folders).emplace_back(entry.d_name);
    } else if (HasImageExtension(entry.d_name)) {
      ++listing.images;
    }
    return Status();
  }));
  std::sort(listing.class_folders.begin(), listing.class_folders.end(), TextLess);
  std::sort(listing.skipped.begin(), listing.skipped.end(), TextLess);
  return listing;
}

Status WalkClass(const std::string& root, const std::string& name, const WalkOptions& options,
                 Walked& walked) {
  const UniqueFd fd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info = {};
  if (!fd || fstat(fd.get(), &info) != 0) return CannotRead("folder", root, errno);
  return ClassWalk(fd.get(), info, options, walked).Run(name);
}

std::string CountAndNames(std::uint64_t count, const std::vector<std::string>& names) {
  std::string text = fmt::format("{}", count);
  for (std::size_t i = 0; i < std::min(names.size(), FolderReport::kNamesShown); ++i) {
    text.append(i == 0 ? ": " : ", ").append(Quoted(names[i]));
  }
  return text + (count > FolderReport::kNamesShown ? ", ..." : "");
}

std::string SkipHint(const std::vector<std::string>& names) {
  std::string text = "skip=[";
  for (std::size_t i = 0; i < std::min(names.size(), FolderReport::kNamesShown); ++i) {
    text.append(i == 0 ? "" : ", ").append(Quoted("/" + names[i]));
  }
  return text + (names.size() > FolderReport::kNamesShown ? ", ...]" : "]");
}

}  // namespace headrace::internal
