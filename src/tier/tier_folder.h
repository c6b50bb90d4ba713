#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "headrace/status.h"
#include "tier/tier_data.h"
#include "tier/tier_io.h"
#include "tier/tier_journal.h"
#include "tier/unit_space.h"

namespace headrace {

// The names of our files; nothing else in a folder is touched.
inline constexpr const char* kTierDataName = "headrace-tier.data";
inline constexpr const char* kTierJournalName = "headrace-tier.journal";
inline constexpr const char* kTierJournalNewName = "headrace-tier.journal.new";

struct TierFolderOptions {
  std::string path;
  JournalHeader header;  // without its generation
  bool direct = true;
  TierIo* io = nullptr;  // null: TierIo::System()
};

// The usable contents of a folder.
struct TierFolderFound {
  std::vector<JournalEntry> entries;
  std::uint64_t next_number = 0;
  UnitSpace space{0};         // without the entries' runs
  std::uint64_t dropped = 0;  // entries that no longer fit, or that contradict later ones
  std::string note;           // "new", "kept 12 entries", "cleared: it was of another dataset"
};

// The folder of a tier, locked as long as this object lives: a data file and the journal that
// describes it. After a kill or a power loss at any moment the journal is readable up to some
// record, or is unreadable and replaced.
//
// Thread safety: data() as TierData; the others one thread at a time.
// Shutdown: the destructor releases the lock, even if forked children have inherited its
// descriptor. In such a child the destructor leaves the lock to the parent. If the parent is
// killed, the lock is held until the child ends.
class TierFolder {
 public:
  ~TierFolder();
  TierFolder(const TierFolder&) = delete;
  TierFolder& operator=(const TierFolder&) = delete;

  // Makes the folder (not its parents), locks it, reads its contents, and begins a new journal with
  // what is kept.
  //
  // Errors: FailedPrecondition  it is in use; it is not a folder, or one of our names in it is
  //                             not a file; no permission
  //         Unavailable         the disk failed, or is full
  static Result<std::unique_ptr<TierFolder>> Open(TierFolderOptions options,
                                                  TierFolderFound* found);

  [[nodiscard]] const JournalHeader& header() const { return options_.header; }
  [[nodiscard]] TierData& data() { return *data_; }

  // Bytes of the journal: every Append() adds, Rewrite() leaves the live records.
  [[nodiscard]] std::uint64_t journal_bytes() const { return journal_bytes_; }

  // Each returns when the record would survive the death of this process; not of the machine. After
  // an error nothing more can be appended: the journal may end in half a record.
  //
  // Errors: Unavailable  the disk failed, or is full, or the journal was removed
  Status AppendInsert(const JournalEntry& entry);
  Status AppendErases(std::span<const std::uint64_t> numbers);

  // Atomically replaces the journal by one of `entries`, sorted by number.
  //
  // Errors: Unavailable  as above; the journal is unchanged
  Status Rewrite(std::span<const JournalEntry> entries);

  // Flushes everything to the disk: for a clean end.
  void Sync();

 private:
  explicit TierFolder(TierFolderOptions options);

  [[nodiscard]] std::string PathOf(const char* name) const { return options_.path + "/" + name; }
  Status Lock();
  Result<UniqueFd> OpenFile(const char* name, int flags);
  // FailedPrecondition if `name` exists and is not a regular file.
  [[nodiscard]] Status CheckIsFile(const char* name) const;
  Result<std::uint64_t> OpenData();  // Returns its size in bytes.
  // The existing journal if it is ours; otherwise an error.
  Result<JournalContents> ReadJournal();
  void Reconcile(JournalContents contents, std::uint64_t data_bytes, TierFolderFound& found);
  Status Append(std::span<const std::byte> records);
  Status WriteJournal(int fd, const JournalHeader& header, std::span<const JournalEntry> entries,
                      std::uint64_t* bytes);

  TierFolderOptions options_;
  TierIo& io_;
  const pid_t pid_;  // the process that took the lock
  UniqueFd folder_;
  std::unique_ptr<TierData> data_;
  UniqueFd journal_;
  std::uint64_t journal_bytes_ = 0;
  Status broken_;  // the first failure of an append: no later change of the journal is tried
};

}  // namespace headrace
