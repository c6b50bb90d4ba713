#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/mutex.h"
#include "headrace/ids.h"
#include "tier/entry_slots.h"

namespace headrace {

// The medium-independent part of an entry. Reference counted: the table and every EntryRef hold a
// reference.
struct TierEntry {
  SampleId sample{};
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  std::atomic<std::uint64_t> references = 1;
  std::atomic<bool> corrupt = false;  // found corrupt; counted once
};

// Maps samples to entries. It is consulted for every delivered sample, so it is divided into shards
// by a hash of the sample: threads rarely contend for a lock.
//
// Thread safety: every method may be called from any thread.
// Ownership: a returned pointer is a reference; give it back with Release().
template <typename Entry>
class EntryTable {
  static_assert(std::is_base_of_v<TierEntry, Entry>);

 public:
  EntryTable() = default;
  EntryTable(const EntryTable&) = delete;
  EntryTable& operator=(const EntryTable&) = delete;
  ~EntryTable() {
    for (Shard& shard : shards_) {
      MutexLock lock(shard.mutex);
      shard.entries.ForEach([](Entry& entry) { const std::unique_ptr<Entry> last(&entry); });
    }
  }

  // The entry of `sample`; null if there is none.
  [[nodiscard]] Entry* Find(SampleId sample) {
    Shard& shard = ShardOf(sample);
    MutexLock lock(shard.mutex);
    Entry* const entry = shard.entries.Find(sample);
    if (entry != nullptr) entry->references.fetch_add(1, std::memory_order_relaxed);
    return entry;
  }

  [[nodiscard]] bool Has(SampleId sample) const {
    const Shard& shard = ShardOf(sample);
    MutexLock lock(shard.mutex);
    return shard.entries.Find(sample) != nullptr;
  }

  // Adds `entry` if its sample has none yet; returns it otherwise.
  [[nodiscard]] std::unique_ptr<Entry> Add(std::unique_ptr<Entry> entry) {
    Shard& shard = ShardOf(entry->sample);
    MutexLock lock(shard.mutex);
    if (shard.entries.Insert(entry.get())) (void)entry.release();
    return entry;
  }

  // Removes the entry of `sample`; if `only` is not null, only if it is that one. Returns the
  // table's reference; null if there was none.
  [[nodiscard]] Entry* Remove(SampleId sample, const Entry* only = nullptr) {
    Shard& shard = ShardOf(sample);
    MutexLock lock(shard.mutex);
    Entry* const entry = shard.entries.Find(sample);
    if (entry == nullptr || (only != nullptr && entry != only)) return nullptr;
    shard.entries.Erase(sample);
    return entry;
  }

  // Drops a reference; returns the entry with the last one.
  [[nodiscard]] static std::unique_ptr<Entry> Release(Entry* entry) {
    if (entry->references.fetch_sub(1, std::memory_order_acq_rel) > 1) return nullptr;
    return std::unique_ptr<Entry>(entry);
  }

  // Calls visit(const Entry&) for each, one shard at a time under its lock.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Shard& shard : shards_) {
      MutexLock lock(shard.mutex);
      shard.entries.ForEach([&visit](const Entry& entry) { visit(entry); });
    }
  }

  [[nodiscard]] std::vector<SampleId> Samples() const {
    std::vector<SampleId> samples;
    ForEach([&samples](const Entry& entry) { samples.push_back(entry.sample); });
    return samples;
  }

  [[nodiscard]] std::uint64_t size() const {
    std::uint64_t entries = 0;
    for (const Shard& shard : shards_) {
      MutexLock lock(shard.mutex);
      entries += shard.entries.size();
    }
    return entries;
  }

 private:
  static constexpr unsigned kShardBits = 4;

  struct alignas(64) Shard {
    mutable Mutex mutex;
    EntrySlots<Entry> entries HEADRACE_GUARDED_BY(mutex){kShardBits};
  };

  static std::size_t ShardNumber(SampleId sample) {
    return SpreadSample(sample) >> (64 - kShardBits);
  }
  Shard& ShardOf(SampleId sample) { return shards_[ShardNumber(sample)]; }
  const Shard& ShardOf(SampleId sample) const { return shards_[ShardNumber(sample)]; }

  std::array<Shard, std::size_t{1} << kShardBits> shards_;
};

}  // namespace headrace
