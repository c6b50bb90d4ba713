#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/executor.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "base/units.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "tier/entry_table.h"
#include "tier/ssd_journal.h"
#include "tier/ssd_units.h"
#include "tier/tier.h"
#include "tier/tier_folder.h"
#include "tier/tier_io.h"
#include "tier/tier_text.h"

namespace headrace {

struct SsdTierOptions {
  std::string folder;  // created if it does not exist; its parent must exist
  std::uint64_t capacity_bytes = 0;
  std::uint64_t unit_bytes = 4096;  // a power of two, at least 4096
  std::string dataset;              // its fingerprint: entries of another dataset are not reused

  bool direct = true;  // past the page cache, if the file system supports it

  // Rewrite the journal when it is larger than this and than twice its live records.
  std::uint64_t journal_slack_bytes = kMiB;
  TierIo* io = nullptr;  // outlives the tier; null: TierIo::System()
};

// Samples in a folder of a local disk, indexed in memory. SsdUnits has the accounts of its space;
// SsdJournal and TierFolder write its files. The next run on the same dataset finds the entries of
// the last one, and verifies their checksums. docs/tiers.md specifies the files and what remains
// after a crash.
//
// Disk: the capacity, and the journal: at most the larger of `journal_slack_bytes` and 112 bytes a
// unit; during a rewrite 56 bytes a unit more.
// Memory: about 200 bytes an entry, 1 MiB for each insert in progress.
//
// Thread safety, ownership, shutdown: as Tier. `executor` must outlive it; its tasks block. Reads
// keep their deadlines, inserts come after all reads.
// Fork: a child may destroy it, which leaves the folder alone, if no call was in progress at the
// fork (it would wait for that call).
class SsdTier final : public Tier {
 public:
  // Errors: InvalidArgument     capacity below a unit, 2^32 units or more, an invalid unit
  //         FailedPrecondition  another loader or process uses the folder, or it cannot be used
  //         Unavailable         the disk failed, or is full
  static Result<std::unique_ptr<SsdTier>> Open(SsdTierOptions options, Executor& executor);
  ~SsdTier() override;

  // What happened to the folder's contents: "new", "kept 12 entries", "cleared: ...".
  [[nodiscard]] const std::string& note() const { return note_; }
  [[nodiscard]] bool direct() const { return folder_->data().direct(); }

  [[nodiscard]] std::string name() const override { return "SSD " + options_.folder; }
  [[nodiscard]] bool in_memory() const override { return false; }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return options_.unit_bytes; }
  [[nodiscard]] EntryRef Find(SampleId sample) override;
  [[nodiscard]] std::optional<std::span<const std::byte>> View(const EntryRef& ref,
                                                               std::uint64_t offset,
                                                               std::uint64_t size) const override;
  void CopyOut(const EntryRef& ref, std::uint64_t offset, std::span<std::byte> to) const override;
  Result<std::uint64_t> Check(const EntryRef& ref) override;
  [[nodiscard]] std::size_t BufferBytes(const EntryRef& ref) const override;
  void Read(const EntryRef& ref, std::uint64_t deadline, std::span<std::byte> buffer,
            std::stop_token stop, DoneRead done) override;
  void Insert(SampleId sample, std::vector<std::span<const std::byte>> parts, Done done) override
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Erase(SampleId sample) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::vector<SampleId> Held() const override { return table_.Samples(); }
  [[nodiscard]] TierStats stats() const override HEADRACE_LOCKS_EXCLUDED(mutex_);

 protected:
  void ReleaseRef(void* entry) override;

 private:
  struct Insertion {
    SampleId sample{};
    std::uint64_t bytes = 0;
    TierParts parts;
    std::vector<Done> done;  // guarded by mutex_, as the next one
    bool cancelled = false;
  };

  SsdTier(SsdTierOptions options, Executor& executor);
  Status Start() HEADRACE_LOCKS_EXCLUDED(journal_mutex_);

  Result<std::span<std::byte>> ReadNow(SsdEntry& entry, std::span<std::byte> buffer)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Removes an entry that could not be read.
  void Drop(SsdEntry& entry) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Called with the last reference.
  void Free(std::unique_ptr<SsdEntry> entry) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // OK: units are charged, and `insertion` runs.
  Status Admit(const std::shared_ptr<Insertion>& insertion) HEADRACE_LOCKS_REQUIRED(mutex_);
  void RunInsert(const std::shared_ptr<Insertion>& insertion)
      HEADRACE_LOCKS_EXCLUDED(journal_mutex_);
  Result<std::unique_ptr<SsdEntry>> WritePayload(const Insertion& insertion)
      HEADRACE_LOCKS_EXCLUDED(journal_mutex_);
  Status MayGoOn(const Insertion& insertion) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Ends an insertion, with its entry on success; returns the callbacks to run.
  std::vector<Done> Settle(Insertion& insertion, std::unique_ptr<SsdEntry> entry, Status* status)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  Result<std::vector<UnitRun>> TakeRuns(std::uint64_t units)
      HEADRACE_LOCKS_EXCLUDED(journal_mutex_);
  Status JournalErased() HEADRACE_LOCKS_REQUIRED(journal_mutex_);
  [[nodiscard]] std::uint64_t LiveBytes() const HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] Status TakesNoMore() const HEADRACE_LOCKS_REQUIRED(mutex_);
  void Degrade(const Status& why) HEADRACE_LOCKS_REQUIRED(mutex_);

  const SsdTierOptions options_;
  const std::array<std::uint64_t, 2> dataset_;  // a fingerprint
  const pid_t pid_;                             // of the process that may write
  Executor& executor_;
  std::string note_;
  std::unique_ptr<TierFolder> folder_;  // data() from any thread, the rest under journal_mutex_
  EntryTable<SsdEntry> table_;
  Gate gate_;  // entered once per call in progress

  // Taken before mutex_, by executor threads only: held while the journal is written.
  Mutex journal_mutex_;
  std::optional<SsdJournal> journal_ HEADRACE_GUARDED_BY(journal_mutex_);  // from Start() on

  mutable Mutex mutex_;
  SsdUnits units_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<SampleId, std::shared_ptr<Insertion>> inserting_ HEADRACE_GUARDED_BY(mutex_);
  TierStats stats_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
