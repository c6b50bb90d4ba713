#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/units.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/share/share_table.h"

namespace headrace {

// A job, as a ReadShare sees it: SharedStore.
class ShareUser {
 public:
  virtual ~ShareUser() = default;

  // Reads the job's storage, with its own credentials and limits.
  [[nodiscard]] virtual ByteStore& storage() = 0;
  // Less than this between two ranges is read with them.
  [[nodiscard]] virtual std::uint64_t gap_bytes() const = 0;
  // The share begins, or ends, something that uses storage().
  virtual void Enter() = 0;
  virtual void Leave() = 0;
  // Ends `request`; `shared_bytes` of it did not come from this job's storage.
  virtual void Answer(ReadRequest& request, Result<std::span<std::byte>> result,
                      std::uint64_t shared_bytes) = 0;
};

struct ReadShareOptions {
  std::uint64_t capacity_bytes = 0;
  // What another job reads is waited for so long; then a job reads it itself.
  std::int64_t wait_max_ns = 10'000'000'000;
};

// The memory in which jobs of one process share what they read; see docs/design/shared-reads.md.
// The steps of a request:
//   1. ShareTable divides it into pieces: held, being read, new. Without room, the job's storage
//      reads the request, and nothing else happens.
//   2. New pieces are read by the job's storage, into memory of the share.
//   3. When all pieces are there, they are verified and copied to the request's buffer.
//   4. If a piece failed that another job read, or a checksum is wrong, the request begins again.
//
// Thread safety: every method may be called from any thread.
// Ownership: users keep it alive; it outlives what it reads.
class ReadShare {
 public:
  // Copies run on `executor`, which needs two threads: one waits.
  ReadShare(ReadShareOptions options, std::unique_ptr<Executor> executor, const Clock& clock);
  ~ReadShare();
  ReadShare(const ReadShare&) = delete;
  ReadShare& operator=(const ReadShare&) = delete;

  // Nothing: too many jobs share. `user` outlives its Leave().
  std::optional<ShareTable::Job> Join(ShareUser& user, const std::string& dataset);
  // After all that `user` asked for has ended.
  void Leave(ShareTable::Job job);

  // As ByteStore::Read(), for `job` of `user`. The user has entered once for each request.
  void Read(ShareUser& user, ShareTable::Job job, std::vector<ReadRequest> requests,
            const std::stop_token& stop);

  [[nodiscard]] std::uint64_t used_bytes() const { return pool_->stats().used_bytes; }

 private:
  // The memory of an entry of the table.
  struct Block;
  // A request that has not been answered.
  struct Pending;

  void Begin(ShareUser& user, std::vector<std::shared_ptr<Pending>> requests);
  bool Plan(const std::shared_ptr<Pending>& request, std::vector<ReadRequest>& reads)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void FreeGone() HEADRACE_LOCKS_REQUIRED(mutex_);
  ReadRequest ReadOf(ShareUser& user, ShareEntry entry, const std::shared_ptr<Block>& block);
  ReadRequest PastShare(const std::shared_ptr<Pending>& request);
  void Landed(ShareEntry entry, Block& block, const Result<std::span<std::byte>>& data);
  void Finish(const std::shared_ptr<Pending>& request);
  void Again(Pending& request, bool past_share);
  bool Copy(const Pending& request, std::uint64_t& shared_bytes);
  void Watch();

  const ReadShareOptions options_;
  const Clock& clock_;
  const std::shared_ptr<BufferPool> pool_;

  Mutex mutex_;
  CondVar changed_;
  ShareTable table_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<ShareEntry, std::shared_ptr<Block>> blocks_ HEADRACE_GUARDED_BY(mutex_);
  // They wait for reads of other jobs.
  std::unordered_set<std::shared_ptr<Pending>> waiting_ HEADRACE_GUARDED_BY(mutex_);
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;

  std::unique_ptr<Executor> executor_;  // Last: runs what was submitted before the rest goes.
};

}  // namespace headrace
