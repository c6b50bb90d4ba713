#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "headrace/ids.h"
#include "tier/tier.h"
#include "tier/tier_text.h"

namespace headrace {

struct SimTierOptions {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t unit_bytes = 4096;

  // Probabilities of faults for each call, in [0, 1].
  std::uint64_t seed = 0;
  double insert_refused = 0;  // answered with ResourceExhausted, though there is room
  double insert_failed = 0;   // answered with Unavailable: the tier is degraded
  double read_failed = 0;     // the same for reads; the entry is removed
  double corrupt = 0;         // entries stored with one bit wrong: detected when they are read

  // The executor's deadline for a call on so many bytes; null: as in SsdTier. An executor of a
  // simulation may use it as the time at which the call completes.
  std::function<std::uint64_t(std::uint64_t deadline, std::uint64_t bytes)> deadline = nullptr;
};

// Simulates an SSD tier in memory: asynchronous, with faults. Which calls fail depends only on the
// seed, the sample, and how often it was called.
//
// Thread safety, ownership, shutdown: as Tier. `executor` must outlive it.
class SimTier final : public Tier {
 public:
  SimTier(Executor& executor, SimTierOptions options);
  ~SimTier() override;

  // From now on the entry's bytes are wrong; inserts, or reads, fail.
  void Corrupt(SampleId sample) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void FailInserts() { inserts_fail_ = true; }
  void FailReads() { reads_fail_ = true; }

  [[nodiscard]] std::string name() const override { return "simulated"; }
  [[nodiscard]] bool in_memory() const override { return false; }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return options_.unit_bytes; }
  [[nodiscard]] EntryRef Find(SampleId sample) override HEADRACE_LOCKS_EXCLUDED(mutex_);
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
  [[nodiscard]] std::vector<SampleId> Held() const override HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] TierStats stats() const override HEADRACE_LOCKS_EXCLUDED(mutex_);

 protected:
  void ReleaseRef(void* entry) override;

 private:
  // Charges its room on construction, and releases it with the last reference.
  struct Entry {
    SimTier& tier;
    const SampleId sample;
    const std::uint64_t units;
    std::string bytes = {};
    bool corrupt = false;

    Entry(SimTier& tier_of_it, SampleId its_sample, std::uint64_t its_units)
        : tier(tier_of_it), sample(its_sample), units(its_units) {}
    ~Entry() { tier.used_units_ -= units; }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
  };
  using EntryPtr = std::shared_ptr<Entry>;
  struct Insertion {
    EntryPtr entry;
    TierParts parts;
    std::vector<Done> done;
    bool cancelled = false;
  };
  enum class Fault : std::uint8_t { kRefused, kInsertFailed, kReadFailed, kCorrupt };

  [[nodiscard]] bool Draw(Fault fault, SampleId sample, double share)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  // Why no insertion can begin now; OK if it can.
  Status Admit(SampleId sample, std::uint64_t bytes) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Finish(const std::shared_ptr<Insertion>& insertion) HEADRACE_LOCKS_EXCLUDED(mutex_);
  Status FinishLocked(Insertion& insertion) HEADRACE_LOCKS_REQUIRED(mutex_);
  Result<std::span<std::byte>> ReadNow(const EntryPtr& entry, std::span<std::byte> buffer)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Degrade(const Status& why) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Forget(const Entry& entry) HEADRACE_LOCKS_REQUIRED(mutex_);

  Executor& executor_;
  const SimTierOptions options_;
  Gate gate_;  // entered once per call in progress
  std::atomic<std::uint64_t> used_units_ = 0;
  std::atomic<bool> inserts_fail_ = false;
  std::atomic<bool> reads_fail_ = false;

  mutable Mutex mutex_;
  std::map<SampleId, EntryPtr> entries_ HEADRACE_GUARDED_BY(mutex_);
  std::map<SampleId, std::shared_ptr<Insertion>> inserting_ HEADRACE_GUARDED_BY(mutex_);
  std::map<std::pair<Fault, SampleId>, std::uint64_t> times_ HEADRACE_GUARDED_BY(mutex_);
  TierStats stats_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
