#pragma once

// tier/ caches samples: bounded caches in the memory of a node and on its disks. A plan decides
// what to keep. A tier never exceeds its capacity and never returns bytes that it did not verify:
// on a failure the sample is read from storage again.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "headrace/ids.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"

namespace headrace {

// A bounded cache of samples. An *entry* is one sample: the bytes of its stored fields, one after
// the other, with a checksum.
//
// Thread safety: every method may be called from any thread.
// Ownership: a tier outlives its references and every call's `done`.
// Shutdown: the destructor waits until every `done` has run.
class Tier {
 public:
  // Runs exactly once per call, on any thread, possibly inside the call.
  using Done = std::function<void(Status)>;
  using DoneRead = std::function<void(Result<std::span<std::byte>>)>;

  // A reference to an entry: its memory is not reused before the reference ends, even after an
  // erase. Move-only.
  class EntryRef {
   public:
    EntryRef() = default;
    EntryRef(EntryRef&& other) noexcept { *this = std::move(other); }
    EntryRef& operator=(EntryRef&& other) noexcept {
      if (this != &other) {
        Reset();
        tier_ = std::exchange(other.tier_, nullptr);
        entry_ = other.entry_;
        bytes_ = other.bytes_;
      }
      return *this;
    }
    ~EntryRef() { Reset(); }

    void Reset() {
      if (tier_ != nullptr) std::exchange(tier_, nullptr)->ReleaseRef(entry_);
    }
    [[nodiscard]] explicit operator bool() const { return tier_ != nullptr; }
    [[nodiscard]] Tier* tier() const { return tier_; }
    [[nodiscard]] void* entry() const { return entry_; }          // the tier's own
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of the sample, not rounded

   private:
    friend class Tier;
    EntryRef(Tier* tier, void* entry, std::uint64_t bytes)
        : tier_(tier), entry_(entry), bytes_(bytes) {}

    Tier* tier_ = nullptr;
    void* entry_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  virtual ~Tier() = default;

  // "RAM", "SSD /nvme/cache"
  [[nodiscard]] virtual std::string name() const = 0;

  // Whether View() and CopyOut() work.
  [[nodiscard]] virtual bool in_memory() const = 0;

  // Capacity is counted in units of this size; an entry of `bytes` takes at least one. Nothing else
  // uses capacity, so a plan that counts units knows what fits.
  [[nodiscard]] virtual std::uint64_t unit_bytes() const = 0;
  [[nodiscard]] std::uint64_t Units(std::uint64_t bytes) const {
    return bytes == 0 ? 1 : (bytes - 1) / unit_bytes() + 1;
  }

  // A reference to the entry of `sample`; an empty one if there is none.
  [[nodiscard]] virtual EntryRef Find(SampleId sample) = 0;

  // The bytes of an entry, as one span or as a copy; not verified. Only for tiers in memory: for
  // others View() returns std::nullopt, and the others abort. The range must lie inside the entry.
  // View() also returns std::nullopt if the range is not contiguous.
  [[nodiscard]] virtual std::optional<std::span<const std::byte>> View(
      const EntryRef& ref, std::uint64_t offset, std::uint64_t size) const = 0;
  virtual void CopyOut(const EntryRef& ref, std::uint64_t offset,
                       std::span<std::byte> to) const = 0;

  // Only for tiers in memory. Verifies the checksum of the bytes, and returns it: their Hash64.
  //
  // Errors: DataLoss  they changed; the entry is erased and counted
  virtual Result<std::uint64_t> Check(const EntryRef& ref) = 0;

  // Size of a buffer to read an entry into, which must be aligned to 4096.
  [[nodiscard]] virtual std::size_t BufferBytes(const EntryRef& ref) const = 0;

  // Reads and verifies all of an entry; `done` gets its position in `buffer`. Among waiting reads
  // the one with the smallest `deadline` is first; reads go before inserts. `ref` and `buffer` must
  // live until `done`. An entry that was erased after Find() is still read.
  //
  // Errors: DataLoss     the checksum is wrong, or bytes are missing; the entry is erased, counted
  //         Unavailable  the medium failed: the tier is degraded, the entry erased
  //         Cancelled    `stop` was requested before the read began
  virtual void Read(const EntryRef& ref, std::uint64_t deadline, std::span<std::byte> buffer,
                    std::stop_token stop, DoneRead done) = 0;

  // Inserts a sample, whose bytes are `parts`, one after the other; they must live until `done`. OK
  // if it is there already. While another insert of it runs, both get that one's result. Find()
  // finds it once `done` was called with OK, not before. The queue of inserts is unbounded; callers
  // bound it.
  //
  // Errors: ResourceExhausted  there is no room now
  //         Unavailable        the medium failed or is full: the tier is degraded
  //         Cancelled          it was erased meanwhile
  virtual void Insert(SampleId sample, std::vector<std::span<const std::byte>> parts,
                      Done done) = 0;

  // Removes an entry: Find() no longer finds it, and a running insert of it is cancelled. Its room
  // is free when its last reference and insert end.
  virtual void Erase(SampleId sample) = 0;

  // Samples that Find() would find, in no order.
  [[nodiscard]] virtual std::vector<SampleId> Held() const = 0;

  [[nodiscard]] virtual TierStats stats() const = 0;

 protected:
  EntryRef MakeRef(void* entry, std::uint64_t bytes) { return {this, entry, bytes}; }
  virtual void ReleaseRef(void* entry) = 0;
};

}  // namespace headrace
