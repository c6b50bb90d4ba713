#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "headrace/ids.h"
#include "headrace/part_options.h"
#include "headrace/status.h"
#include "store/file_mapping.h"

namespace headrace {

// A file as it was when it was indexed.
struct FileInfo {
  std::string path;
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // nanoseconds since 1970; 0: not known, not compared
};

// Maps objects to files. An adapter implements it with the index, so store/ does not depend on
// index/.
//
// Thread safety: file() may be called from any thread.
class FileCatalog {
 public:
  virtual ~FileCatalog() = default;

  // Errors: NotFound  no such object
  [[nodiscard]] virtual Result<FileInfo> file(ObjectId object) const = 0;
  // Valid as long as the catalogue.
  [[nodiscard]] virtual const FileRemedies& remedies() const {
    static const FileRemedies general;
    return general;
  }
  // What to do about the file at FileInfo::path, which is not there. Only called for an error.
  [[nodiscard]] virtual std::string RemedyOfMissing(const std::string& /*path*/) const {
    return "put it back, or " + remedies().changed;
  }
};

// A file that stays open is compared with the index again if it is used this long after the last
// comparison.
inline constexpr std::uint32_t kCheckEveryS = 2;

// An open file that matched the index when it was opened. Closed with its last reference.
//
// Thread safety: every method may be called from any thread.
class OpenFile {
 public:
  // `remedies` outlive the file.
  OpenFile(FileInfo info, UniqueFd fd, const FileRemedies& remedies)
      : info_(std::move(info)), fd_(std::move(fd)), remedies_(remedies) {}

  [[nodiscard]] const std::string& path() const { return info_.path; }
  [[nodiscard]] std::uint64_t size() const { return info_.size; }  // bytes, as indexed
  [[nodiscard]] int fd() const { return fd_.get(); }               // reads use the page cache

  // Whether direct_fd() may be read, in whole blocks of direct_alignment() bytes.
  [[nodiscard]] bool direct() const { return direct_fd_ && !direct_refused_; }
  [[nodiscard]] int direct_fd() const { return direct_fd_.get(); }
  [[nodiscard]] std::uint64_t direct_alignment() const { return direct_alignment_; }

  // Whether the page cache has its pages under this file: overlayfs has them under the lower file.
  [[nodiscard]] bool cache_is_its_own() const { return cache_is_its_own_; }

  // The file mapped, from the first call on. Null: the system refuses.
  FileMapping* mapping(const FileMapping::CachedPages& cached) {
    std::call_once(mapped_, [&] { mapping_ = FileMapping::Make(fd(), size(), cached); });
    return mapping_.get();
  }

  // Remembers that the file system accepts O_DIRECT but refuses such reads (EINVAL).
  void RefuseDirect() { direct_refused_ = true; }

  // Checks that the file still matches the index.
  //
  // Errors: FailedPrecondition  it does not
  [[nodiscard]] Status CheckAsIndexed() const;

  // Whether it is kCheckEveryS seconds since this was true last, or since the file was opened.
  // `now_s`: of CLOCK_MONOTONIC.
  [[nodiscard]] bool IsCheckDue(std::uint32_t now_s) {
    std::uint32_t then_s = checked_s_.load(std::memory_order_relaxed);
    if (now_s - then_s < kCheckEveryS) return false;
    return checked_s_.compare_exchange_strong(then_s, now_s, std::memory_order_relaxed);
  }

  // The error of a read that ended `missing_bytes` early.
  //
  // Errors: FailedPrecondition  the file no longer matches the index
  //         DataLoss            it matches, but has fewer bytes than its size
  [[nodiscard]] Status WhyShort(std::uint64_t missing_bytes) const;

 private:
  friend class FileTable;

  const FileInfo info_;
  const UniqueFd fd_;
  const FileRemedies& remedies_;
  UniqueFd direct_fd_;
  std::uint64_t direct_alignment_ = 0;  // bytes
  bool cache_is_its_own_ = false;
  std::atomic<bool> direct_refused_ = false;
  std::atomic<std::uint32_t> checked_s_ = 0;
  std::once_flag mapped_;
  std::unique_ptr<FileMapping> mapping_;
};

struct FileTableOptions {
  bool direct = false;  // open with O_DIRECT, too, if the file system supports it
  // Limit of files kept open; 0: a quarter of RLIMIT_NOFILE, at most 16384, shared equally by all
  // such tables of the process. When another table is made, each share shrinks: a table above its
  // share closes files at its next use.
  std::size_t descriptors_max = 0;

  // Alignment of direct reads in bytes, at most kBufferAlignment; 0: as the file system reports.
  std::uint64_t direct_alignment = 0;
};

// Opens the files of a catalogue, and keeps those open that are read in parts.
//
// A file that is read whole is opened for one read and closed: such files are many and small. For
// other ranges the descriptor stays open; beyond `descriptors_max` the least recently used one is
// closed. A file in use is never closed: while all are in use, a further file is open only during
// its read.
//
// Thread safety: every method may be called from any thread.
// Ownership: `catalog` must outlive the table and its files. Files may outlive the table.
class FileTable {
 public:
  FileTable(const FileCatalog& catalog, FileTableOptions options);
  FileTable(const FileTable&) = delete;
  FileTable& operator=(const FileTable&) = delete;
  ~FileTable();

  // Opens the file of `extent` and checks, each time, that it matches the index.
  //
  // Errors: NotFound            no such object, or the file was removed
  //         OutOfRange          the range ends past the size in the catalogue
  //         FailedPrecondition  changed since indexed, not a regular file, no permission to read
  //         ResourceExhausted   out of descriptors or memory
  //         Unavailable         may succeed if tried again
  // Messages are complete: "reading PATH bytes [8, 12): CAUSE".
  Result<std::shared_ptr<OpenFile>> Open(const Extent& extent) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Opens the file for one read of all of it, and checks as Open() does.
  //
  // Errors: those of Open(), without OutOfRange. Messages have the cause only.
  Result<std::shared_ptr<OpenFile>> OpenWhole(ObjectId object) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // The file of `extent` if it is open already and contains the range, otherwise null. Never waits
  // for storage.
  std::shared_ptr<OpenFile> FindOpen(const Extent& extent) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // The checks of Open() without opening: for empty ranges.
  [[nodiscard]] Status Check(const Extent& extent) const;

  // As ByteStore::CheckObject().
  Status CheckObject(ObjectId object) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // As ByteStore::CheckOpen(). A file that has changed is closed: the next Open() says why.
  Status CheckOpen() HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool HasOpen() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  // For tests.
  [[nodiscard]] std::size_t open_files() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  using Recent = std::list<ObjectId>;  // most recently used first
  struct Cached {
    std::shared_ptr<OpenFile> file;
    Recent::iterator recent;
  };

  Result<std::shared_ptr<OpenFile>> OpenNow(FileInfo info) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Returns the descriptor, or a negative errno. If there is none left, closes unused files.
  int OpenDescriptor(const std::string& path, int flags) HEADRACE_LOCKS_EXCLUDED(mutex_);
  Status OpenDirect(OpenFile& file) HEADRACE_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<OpenFile> Find(ObjectId object) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Null: it is not open, or has changed since it was.
  std::shared_ptr<OpenFile> FindUnchanged(ObjectId object) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Compares a file with the index. One that has changed is not in the table any more, and
  // CheckOpen() reports it.
  Status CheckAgain(ObjectId object, const OpenFile& file) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Of files that left the table, and are about to be closed: they may have changed since they were
  // read.
  void CheckClosing(const std::vector<std::shared_ptr<OpenFile>>& files)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void NoteChanged(const OpenFile& file, const Status& why) HEADRACE_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<OpenFile> Add(ObjectId object, std::shared_ptr<OpenFile> file)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] std::size_t FilesMax() const;  // the current limit, at least 1

  // Removes unused files from the table until at most `files` are left, and returns them: the
  // caller closes them after releasing the lock.
  std::vector<std::shared_ptr<OpenFile>> ForgetIdle(std::size_t files)
      HEADRACE_LOCKS_REQUIRED(mutex_);

  const FileCatalog& catalog_;
  const bool direct_;
  const std::uint64_t direct_alignment_;  // bytes; 0: as the file system reports
  const bool shares_;
  const std::size_t descriptors_max_;

  mutable Mutex mutex_;
  Recent recent_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<ObjectId, Cached> files_ HEADRACE_GUARDED_BY(mutex_);
  Status changed_ HEADRACE_GUARDED_BY(mutex_);  // the first since CheckOpen(), with its path
  std::set<std::uint64_t> devices_without_direct_ HEADRACE_GUARDED_BY(mutex_);  // st_dev
};

}  // namespace headrace
