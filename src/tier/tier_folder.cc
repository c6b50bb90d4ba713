#include "tier/tier_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/process_id.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::size_t kBufferBytes = kMiB;

Status Refused(const std::string& what, const std::string& why) {
  return Status(StatusCode::kFailedPrecondition, what + ": " + why);
}

// For a call that opens something: the user must correct a wrong name or missing permission.
Status OpenError(int error, const std::string& doing) {
  const bool medium = error == EIO || error == ENOSPC || error == EDQUOT || error == ENOMEM ||
                      error == EMFILE || error == ENFILE || error == ESTALE;
  if (medium) return TierIoError(error, doing);
  return Refused(doing, ErrnoText(error));
}

std::uint64_t NewGeneration() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    number = static_cast<std::uint64_t>(::getpid());  // Still bound to offsets and checksums.
  }
  return number;
}

// The largest journal with this header: a larger file is not our journal.
std::uint64_t JournalBytesMax(const JournalHeader& header) {
  return 64 * kMiB + 4 * InsertRecordBytes(1) * header.capacity_units;
}

// The kind of an entry that is not a file. For messages.
std::string KindOf(int folder, const char* name, mode_t mode) {
  if (S_ISLNK(mode)) {
    std::array<char, 4096> target{};
    const ssize_t size = ::readlinkat(folder, name, target.data(), target.size());
    return "a symbolic link" +
           (size > 0 ? " to '" + std::string(target.data(), static_cast<std::size_t>(size)) + "'"
                     : std::string());
  }
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool Inside(const JournalEntry& entry, std::uint64_t units) {
  return std::all_of(entry.runs.begin(), entry.runs.end(), [units](UnitRun run) {
    return std::uint64_t{run.first} + run.count <= units;
  });
}

}  // namespace

TierFolder::TierFolder(TierFolderOptions options)
    : options_(std::move(options)),
      io_(options_.io != nullptr ? *options_.io : TierIo::System()),
      pid_(ProcessId()) {}

// close() alone would leave the lock with forked children that inherited the descriptor.
TierFolder::~TierFolder() {
  if (folder_ && ProcessId() == pid_) (void)::flock(folder_.get(), LOCK_UN);
}

Result<std::unique_ptr<TierFolder>> TierFolder::Open(TierFolderOptions options,
                                                     TierFolderFound* found) {
  std::unique_ptr<TierFolder> folder(new TierFolder(std::move(options)));
  HEADRACE_RETURN_IF_ERROR(folder->Lock());
  for (const char* name : {kTierDataName, kTierJournalName, kTierJournalNewName}) {
    HEADRACE_RETURN_IF_ERROR(folder->CheckIsFile(name));
  }
  // Left over from an interrupted rewrite. Fails if there is none.
  (void)::unlinkat(folder->folder_.get(), kTierJournalNewName, 0);
  Result<JournalContents> journal = folder->ReadJournal();
  if (!journal.ok() && journal.status().code() == StatusCode::kUnavailable) {
    return journal.status();
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t data_bytes, folder->OpenData());
  found->space = UnitSpace(static_cast<std::uint32_t>(folder->header().capacity_units));
  bool clear = !journal.ok();
  if (clear) {
    const bool is_new = journal.status().code() == StatusCode::kNotFound && data_bytes == 0;
    found->note = is_new ? "new" : "cleared: " + std::string(journal.status().message());
  } else {
    folder->Reconcile(std::move(journal).value(), data_bytes, *found);
  }
  // First the journal, then the data: until it is replaced, the old journal describes the old data.
  Status written = folder->Rewrite(found->entries);
  if (!written.ok() && data_bytes > 0) {
    // The disk is full of this cache's own data: clear it. Without a journal the remaining data is
    // not used.
    (void)::unlinkat(folder->folder_.get(), kTierJournalName, 0);
    HEADRACE_RETURN_IF_ERROR(folder->data().Resize(/*clear=*/true, 0));
    clear = true;
    found->note = "cleared: " + std::string(written.message());
    found->entries.clear();
    found->space = UnitSpace(static_cast<std::uint32_t>(folder->header().capacity_units));
    written = folder->Rewrite({});
  }
  HEADRACE_RETURN_IF_ERROR(written);
  HEADRACE_RETURN_IF_ERROR(
      folder->data().Resize(clear, folder->header().capacity_units * folder->header().unit_bytes));
  return folder;
}

Status TierFolder::Lock() {
  const std::string doing = "SSD tier '" + options_.path + "'";
  if (::mkdir(options_.path.c_str(), 0777) != 0 && errno != EEXIST) {
    if (errno == ENOENT) return Refused(doing, "the folder around it is missing; make it first");
    return OpenError(errno, doing + ": making the folder");
  }
  folder_ = UniqueFd(::open(options_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_ && errno == ENOTDIR) return Refused(doing, "it is no folder; give the tier another");
  if (!folder_) return OpenError(errno, doing + ": opening the folder");
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0) return Status();
  if (errno == EWOULDBLOCK) {
    return Refused(doing,
                   "another loader or process uses this folder; give each its own, or end "
                   "the other");
  }
  return Refused(doing, "locking the folder: " + ErrnoText(errno) + "; put it on a local disk");
}

Result<UniqueFd> TierFolder::OpenFile(const char* name, int flags) {
  // O_NONBLOCK: do not wait for a pipe that replaced the file.
  UniqueFd fd(::openat(folder_.get(), name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd && errno == ENOENT) {
    return Status(StatusCode::kNotFound, "it has no '" + std::string(name) + "'");
  }
  if (!fd) return OpenError(errno, "opening '" + PathOf(name) + "'");
  HEADRACE_RETURN_IF_ERROR(CheckIsFile(name));
  return fd;
}

Status TierFolder::CheckIsFile(const char* name) const {
  struct stat stat = {};
  if (::fstatat(folder_.get(), name, &stat, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Status() : OpenError(errno, "stat of '" + PathOf(name) + "'");
  }
  if (S_ISREG(stat.st_mode)) return Status();
  return Refused("opening '" + PathOf(name) + "'",
                 "it is " + KindOf(folder_.get(), name, stat.st_mode) +
                     ", but a tier keeps a file of its own under this name and follows no link; "
                     "move it elsewhere, or give the tier another folder");
}

Result<std::uint64_t> TierFolder::OpenData() {
  HEADRACE_ASSIGN_OR_RETURN(UniqueFd file, OpenFile(kTierDataName, O_RDWR | O_CREAT));
  UniqueFd direct;
  if (options_.direct) {
    // A file system without O_DIRECT is not an error.
    direct = UniqueFd(::openat(folder_.get(), kTierDataName,
                               O_RDWR | O_DIRECT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  }
  struct stat stat = {};
  if (::fstat(file.get(), &stat) != 0)
    return OpenError(errno, "stat of '" + PathOf(kTierDataName) + "'");
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);
  data_ = std::make_unique<TierData>(PathOf(kTierDataName), std::move(file), std::move(direct),
                                     header().unit_bytes, io_);
  return static_cast<std::uint64_t>(stat.st_size);
}

Result<JournalContents> TierFolder::ReadJournal() {
  HEADRACE_ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(kTierJournalName, O_RDONLY));
  struct stat stat = {};
  if (::fstat(file.get(), &stat) != 0)
    return OpenError(errno, "stat of '" + PathOf(kTierJournalName) + "'");
  const auto file_bytes = static_cast<std::uint64_t>(stat.st_size);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(file_bytes, kJournalHeaderBytes));
  const std::string doing = "reading '" + PathOf(kTierJournalName) + "'";
  ssize_t got = ReadFully(io_, file.get(), bytes, 0, 1);
  if (got < 0) return TierIoError(static_cast<int>(-got), doing);
  HEADRACE_ASSIGN_OR_RETURN(const JournalContents head, ParseJournal(bytes));
  if (head.header.dataset != header().dataset) {
    return Refused("its entries", "they are of another dataset");
  }
  if (head.header.unit_bytes != header().unit_bytes) {
    return Refused("its entries", "they are in units of " + FormatBytes(head.header.unit_bytes) +
                                      ", not of " + FormatBytes(header().unit_bytes));
  }
  bytes.resize(std::min(file_bytes, JournalBytesMax(head.header)));
  got = ReadFully(io_, file.get(), bytes, 0, 1);
  if (got < 0) return TierIoError(static_cast<int>(-got), doing);
  return ParseJournal(std::span(bytes).first(static_cast<std::size_t>(got)));
}

void TierFolder::Reconcile(JournalContents contents, std::uint64_t data_bytes,
                           TierFolderFound& found) {
  const std::uint64_t units = std::min(header().capacity_units, data_bytes / header().unit_bytes);
  found.next_number = contents.next_number;
  // From the last: if two entries claim a unit, the later one was written there.
  for (auto entry = contents.live.rbegin(); entry != contents.live.rend(); ++entry) {
    if (Inside(*entry, units) && found.space.Reserve(entry->runs)) {
      found.entries.push_back(std::move(*entry));
    } else {
      ++found.dropped;
    }
  }
  std::reverse(found.entries.begin(), found.entries.end());
  found.note = "kept " + std::to_string(found.entries.size()) + " entries";
  if (found.dropped > 0) found.note += ", dropped " + std::to_string(found.dropped);
}

Status TierFolder::AppendInsert(const JournalEntry& entry) {
  std::vector<std::byte> record;
  EncodeInsert(header(), journal_bytes_, entry, record);
  return Append(record);
}

Status TierFolder::AppendErases(std::span<const std::uint64_t> numbers) {
  std::vector<std::byte> records;
  for (const std::uint64_t number : numbers) {
    EncodeErase(header(), journal_bytes_ + records.size(), number, records);
  }
  return Append(records);
}

Status TierFolder::Append(std::span<const std::byte> records) {
  HEADRACE_RETURN_IF_ERROR(broken_);
  const std::string doing = "writing '" + PathOf(kTierJournalName) + "'";
  struct stat stat = {};
  if (::fstat(journal_.get(), &stat) == 0 && stat.st_nlink == 0) {
    broken_ = Status(StatusCode::kUnavailable, doing + ": the file was removed");
    return broken_;
  }
  const int error = WriteFully(io_, journal_.get(), records, journal_bytes_, 1);
  if (error != 0) {
    broken_ = TierIoError(-error, doing);
    return broken_;
  }
  journal_bytes_ += records.size();
  return Status();
}

Status TierFolder::Rewrite(std::span<const JournalEntry> entries) {
  HEADRACE_RETURN_IF_ERROR(broken_);
  const std::string doing = "rewriting '" + PathOf(kTierJournalName) + "'";
  Result<UniqueFd> file = OpenFile(kTierJournalNewName, O_RDWR | O_CREAT | O_TRUNC);
  if (!file.ok()) {
    const bool gone = file.status().code() == StatusCode::kNotFound;
    return Status(
        StatusCode::kUnavailable,
        doing + ": " + (gone ? "the folder was removed" : std::string(file.status().message())));
  }
  JournalHeader header = this->header();
  header.generation = NewGeneration();
  std::uint64_t bytes = 0;
  Status status = WriteJournal(file.value().get(), header, entries, &bytes);
  // If it were renamed before it is on disk, it might be empty after a power loss.
  if (status.ok()) {
    int error = io_.Sync(file.value().get());
    if (error == 0) error = io_.Rename(folder_.get(), kTierJournalNewName, kTierJournalName);
    if (error != 0) status = TierIoError(-error, doing);
  }
  if (!status.ok()) {
    (void)::unlinkat(folder_.get(), kTierJournalNewName, 0);
    return status;
  }
  (void)::fsync(folder_.get());  // Some file systems cannot sync a folder.
  journal_ = std::move(file).value();
  journal_bytes_ = bytes;
  options_.header = header;
  return Status();
}

Status TierFolder::WriteJournal(int fd, const JournalHeader& header,
                                std::span<const JournalEntry> entries, std::uint64_t* bytes) {
  const auto first = EncodeJournalHeader(header);
  std::vector<std::byte> buffer(first.begin(), first.end());
  std::uint64_t written = 0;
  const auto flush = [&] {
    const int error = WriteFully(io_, fd, buffer, written, 1);
    written += buffer.size();
    buffer.clear();
    return error == 0 ? Status()
                      : TierIoError(-error, "writing '" + PathOf(kTierJournalNewName) + "'");
  };
  for (const JournalEntry& entry : entries) {
    EncodeInsert(header, written + buffer.size(), entry, buffer);
    if (buffer.size() >= kBufferBytes) HEADRACE_RETURN_IF_ERROR(flush());
  }
  HEADRACE_RETURN_IF_ERROR(flush());
  *bytes = written;
  return Status();
}

void TierFolder::Sync() {
  (void)io_.Sync(data_->fd());
  (void)io_.Sync(journal_.get());
}

}  // namespace headrace
