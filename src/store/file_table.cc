#include "store/file_table.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"
#include "store/byte_store.h"
#include "store/file_io.h"
#include "store/request.h"

namespace headrace {
namespace {

constexpr std::size_t kDescriptorsDefault = 16384;

// Tables of this process that share the default limit.
std::atomic<std::size_t>& SharingTables() {
  static std::atomic<std::size_t> tables = 0;
  return tables;
}

std::size_t DescriptorsMax(std::size_t asked) {
  if (asked != 0) return asked;
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kDescriptorsDefault;
  return std::min<std::size_t>(kDescriptorsDefault, std::max<rlim_t>(limit.rlim_cur / 4, 1));
}

std::int64_t ModifiedNanos(const struct stat& stat) {
  return stat.st_mtim.tv_sec * kNsPerSecond + stat.st_mtim.tv_nsec;
}

Status Changed(std::string_view what, std::int64_t was, std::int64_t is,
               const FileRemedies& remedies) {
  return FailedPrecondition("file changed since it was indexed: {} was {}, is {}; {}", what, was,
                            is, remedies.changed);
}

Status Gone(const std::string& path, const FileCatalog& catalog) {
  std::error_code no_link;
  const std::string target = std::filesystem::read_symlink(path, no_link).string();
  if (no_link) {
    return Status(StatusCode::kNotFound, "no such file; " + catalog.RemedyOfMissing(path));
  }
  return Status(StatusCode::kNotFound,
                fmt::format("a link to {}, which is not there; put it back, or {}", target,
                            catalog.remedies().broken_link));
}

// Errors: FailedPrecondition  `stat` is not that of the indexed file
Status CheckAsIndexed(const FileInfo& info, const struct stat& stat, const FileRemedies& remedies) {
  if (!S_ISREG(stat.st_mode)) {
    return Status(StatusCode::kFailedPrecondition,
                  std::string(S_ISDIR(stat.st_mode) ? "a directory; " : "not a regular file; ") +
                      remedies.special);
  }
  if (static_cast<std::uint64_t>(stat.st_size) != info.size) {
    return Changed("size in bytes", static_cast<std::int64_t>(info.size), stat.st_size, remedies);
  }
  if (info.mtime_ns != 0 && ModifiedNanos(stat) != info.mtime_ns) {
    return Changed("time of change in ns", info.mtime_ns, ModifiedNanos(stat), remedies);
  }
  return Status();
}

Result<struct stat> StatOf(int fd) {
  struct stat stat = {};
  if (::fstat(fd, &stat) != 0) return ErrnoStatus(errno, "fstat");
  return stat;
}

// Returns the descriptor, or a negative errno.
int OpenForReading(const std::string& path, int flags) {
  // O_NONBLOCK: opening a pipe that replaced the file must not wait for a writer.
  const int fd = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -errno;
  // Cleared again: io_uring fails reads of an O_NONBLOCK file that it cannot answer immediately.
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// The alignment in bytes that direct reads of `fd` need; std::nullopt if it does not support them.
std::optional<std::uint64_t> DirectAlignment(int fd) {
  struct statx answer = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &answer) != 0) return kBufferAlignment;
  if ((answer.stx_mask & STATX_DIOALIGN) == 0) return kBufferAlignment;  // Kernels before 6.1.
  const std::uint64_t offsets = answer.stx_dio_offset_align;
  const std::uint64_t memory = answer.stx_dio_mem_align;
  if (offsets == 0 || offsets > kBufferAlignment || memory > kBufferAlignment) return std::nullopt;
  return offsets;
}

}  // namespace

Status OpenFile::CheckAsIndexed() const {
  HEADRACE_ASSIGN_OR_RETURN(const struct stat stat, StatOf(fd()));
  return headrace::CheckAsIndexed(info_, stat, remedies_);
}

Status OpenFile::WhyShort(std::uint64_t missing_bytes) const {
  HEADRACE_RETURN_IF_ERROR(CheckAsIndexed());
  return DataLoss("short read: {} missing at the end, though the file has its {}",
                  Counted(missing_bytes, "byte"), Counted(info_.size, "byte"));
}

FileTable::FileTable(const FileCatalog& catalog, FileTableOptions options)
    : catalog_(catalog),
      direct_(options.direct),
      direct_alignment_(options.direct_alignment),
      shares_(options.descriptors_max == 0),
      descriptors_max_(DescriptorsMax(options.descriptors_max)) {
  if (shares_) ++SharingTables();
}

FileTable::~FileTable() {
  if (shares_) --SharingTables();
}

std::size_t FileTable::FilesMax() const {
  const std::size_t tables = shares_ ? SharingTables().load() : 1;
  return std::max<std::size_t>(descriptors_max_ / tables / (direct_ ? 2 : 1), 1);
}

Status FileTable::Check(const Extent& extent) const {
  Result<FileInfo> info = catalog_.file(extent.object);
  if (!info.ok()) return info.status().WithContext(Doing(ObjectName(extent.object), extent.range));
  Status status = CheckRange(extent.range, info.value().size);
  if (status.ok()) return status;
  return status.WithContext(Doing(info.value().path, extent.range));
}

Status FileTable::CheckObject(ObjectId object) {
  if (const std::shared_ptr<OpenFile> found = Find(object); found != nullptr) {
    return found->CheckAsIndexed().WithContext("opening " + found->path());
  }
  Result<FileInfo> info = catalog_.file(object);
  if (!info.ok()) return info.status().WithContext("opening " + ObjectName(object));
  const std::string path = info.value().path;
  return OpenNow(std::move(info).value()).status().WithContext("opening " + path);
}

Result<std::shared_ptr<OpenFile>> FileTable::Open(const Extent& extent) {
  if (std::shared_ptr<OpenFile> found = FindUnchanged(extent.object); found != nullptr) {
    const Status status = CheckRange(extent.range, found->size());
    if (status.ok()) return found;
    return status.WithContext(Doing(found->path(), extent.range));
  }
  Result<FileInfo> found = catalog_.file(extent.object);
  if (!found.ok()) {
    return found.status().WithContext(Doing(ObjectName(extent.object), extent.range));
  }
  const FileInfo info = std::move(found).value();
  Status status = CheckRange(extent.range, info.size);
  if (!status.ok()) return status.WithContext(Doing(info.path, extent.range));
  Result<std::shared_ptr<OpenFile>> file = OpenNow(info);
  if (!file.ok()) return file.status().WithContext(Doing(info.path, extent.range));
  if (extent.range.size == info.size) return file;
  // Ranges come in random order: reading ahead would be useless.
  ::posix_fadvise(file.value()->fd(), 0, 0, POSIX_FADV_RANDOM);
  return Add(extent.object, std::move(file).value());
}

Result<std::shared_ptr<OpenFile>> FileTable::OpenWhole(ObjectId object) {
  HEADRACE_ASSIGN_OR_RETURN(FileInfo info, catalog_.file(object));
  return OpenNow(std::move(info));
}

std::shared_ptr<OpenFile> FileTable::FindOpen(const Extent& extent) {
  std::shared_ptr<OpenFile> found = FindUnchanged(extent.object);
  const bool has_range = found != nullptr && CheckRange(extent.range, found->size()).ok();
  return has_range ? std::move(found) : nullptr;
}

std::size_t FileTable::open_files() const {
  MutexLock lock(mutex_);
  return files_.size();
}

Result<std::shared_ptr<OpenFile>> FileTable::OpenNow(FileInfo info) {
  const int fd = OpenDescriptor(info.path, 0);
  if (fd == -ENOENT) return Gone(info.path, catalog_);
  if (fd < 0) return ErrnoStatus(-fd, "open");
  auto file = std::make_shared<OpenFile>(std::move(info), UniqueFd(fd), catalog_.remedies());
  HEADRACE_RETURN_IF_ERROR(file->CheckAsIndexed());
  file->checked_s_ = CoarseSeconds();
  if (!direct_) return file;
  struct statfs system = {};
  file->cache_is_its_own_ = ::fstatfs(fd, &system) == 0 && system.f_type != OVERLAYFS_SUPER_MAGIC;
  HEADRACE_RETURN_IF_ERROR(OpenDirect(*file));
  return file;
}

int FileTable::OpenDescriptor(const std::string& path, int flags) {
  int fd = OpenForReading(path, flags);
  if (fd == -EMFILE || fd == -ENFILE) {
    std::vector<std::shared_ptr<OpenFile>> closing;
    {
      MutexLock lock(mutex_);
      closing = ForgetIdle(0);
    }
    CheckClosing(closing);
    closing.clear();
    fd = OpenForReading(path, flags);
  }
  return fd;
}

Status FileTable::OpenDirect(OpenFile& file) {
  HEADRACE_ASSIGN_OR_RETURN(const struct stat stat, StatOf(file.fd()));
  {
    MutexLock lock(mutex_);
    if (devices_without_direct_.contains(stat.st_dev)) return Status();
  }
  const int fd = OpenDescriptor(file.path(), O_DIRECT);
  if (fd == -EINVAL) {
    MutexLock lock(mutex_);
    devices_without_direct_.insert(stat.st_dev);
    return Status();
  }
  if (fd < 0) return ErrnoStatus(-fd, "open");
  file.direct_fd_ = UniqueFd(fd);
  HEADRACE_ASSIGN_OR_RETURN(const struct stat again, StatOf(fd));
  if (again.st_ino != stat.st_ino || again.st_dev != stat.st_dev) {
    return Status(StatusCode::kUnavailable,
                  "another file replaced it while it was being opened; do not change files of a "
                  "dataset during a run");
  }
  const std::optional<std::uint64_t> alignment = DirectAlignment(fd);
  if (!alignment.has_value()) file.RefuseDirect();
  file.direct_alignment_ =
      direct_alignment_ != 0 ? direct_alignment_ : alignment.value_or(kBufferAlignment);
  return Status();
}

std::shared_ptr<OpenFile> FileTable::Find(ObjectId object) {
  std::vector<std::shared_ptr<OpenFile>> closing;
  std::shared_ptr<OpenFile> file;
  {
    MutexLock lock(mutex_);
    const auto found = files_.find(object);
    if (found == files_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second.recent);
    file = found->second.file;
    closing = ForgetIdle(FilesMax());  // Tables may have been made meanwhile.
  }
  CheckClosing(closing);
  return file;
}

std::shared_ptr<OpenFile> FileTable::FindUnchanged(ObjectId object) {
  std::shared_ptr<OpenFile> file = Find(object);
  if (file == nullptr || !file->IsCheckDue(CoarseSeconds())) return file;
  return CheckAgain(object, *file).ok() ? file : nullptr;
}

Status FileTable::CheckAgain(ObjectId object, const OpenFile& file) {
  const Status status = file.CheckAsIndexed();
  if (status.ok()) return status;
  NoteChanged(file, status);
  MutexLock lock(mutex_);
  const auto found = files_.find(object);
  if (found != files_.end() && found->second.file.get() == &file) {
    recent_.erase(found->second.recent);
    files_.erase(found);
  }
  return status;
}

void FileTable::NoteChanged(const OpenFile& file, const Status& why) {
  MutexLock lock(mutex_);
  if (changed_.ok()) changed_ = why.WithContext("reading " + file.path());
}

void FileTable::CheckClosing(const std::vector<std::shared_ptr<OpenFile>>& files) {
  for (const std::shared_ptr<OpenFile>& file : files) {
    if (const Status status = file->CheckAsIndexed(); !status.ok()) NoteChanged(*file, status);
  }
}

Status FileTable::CheckOpen() {
  std::vector<ObjectId> objects;
  {
    MutexLock lock(mutex_);
    objects.assign(recent_.begin(), recent_.end());
  }
  for (const ObjectId object : objects) {
    std::shared_ptr<OpenFile> file;
    {
      MutexLock lock(mutex_);
      const auto found = files_.find(object);
      if (found != files_.end()) file = found->second.file;
    }
    if (file != nullptr) static_cast<void>(CheckAgain(object, *file));
  }
  MutexLock lock(mutex_);
  return std::exchange(changed_, Status());
}

bool FileTable::HasOpen() const {
  MutexLock lock(mutex_);
  return !files_.empty() || !changed_.ok();
}

std::shared_ptr<OpenFile> FileTable::Add(ObjectId object, std::shared_ptr<OpenFile> file) {
  std::vector<std::shared_ptr<OpenFile>> closing;
  {
    MutexLock lock(mutex_);
    // Another thread may have opened it meanwhile.
    if (const auto found = files_.find(object); found != files_.end()) return found->second.file;
    const std::size_t files_max = FilesMax();
    closing = ForgetIdle(files_max - 1);
    if (files_.size() < files_max) {
      recent_.push_front(object);
      files_.emplace(object, Cached{file, recent_.begin()});
    }
  }
  CheckClosing(closing);
  return file;
}

std::vector<std::shared_ptr<OpenFile>> FileTable::ForgetIdle(std::size_t files) {
  std::vector<std::shared_ptr<OpenFile>> forgotten;
  for (auto it = recent_.end(); it != recent_.begin() && files_.size() > files;) {
    --it;
    const auto found = files_.find(*it);
    // One use is the table's own. Only the table, under its lock, adds uses.
    if (found->second.file.use_count() > 1) continue;
    forgotten.push_back(std::move(found->second.file));
    files_.erase(found);
    it = recent_.erase(it);
  }
  return forgotten;
}

}  // namespace headrace
