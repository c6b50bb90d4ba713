#pragma once

// tier/ keeps samples close: bounded caches in the memory of a node and on its disks. A tier does
// as it is told (a plan decides what to keep), never passes its capacity, and never gives a byte
// that it did not check: what it cannot give is read from storage again.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

struct TierStats {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;  // rounded as charged, entries being written and freed too
  std::uint64_t used_bytes_peak = 0;
  std::uint64_t entries = 0;            // that Find() would find
  std::uint64_t entries_inherited = 0;  // of a run before, found at the start and kept
  std::uint64_t inserts = 0;            // that succeeded
  std::uint64_t inserts_refused = 0;    // for want of room
  std::uint64_t inserts_failed = 0;     // the medium failed
  std::uint64_t erased = 0;             // by Erase()
  std::uint64_t read_bytes = 0;         // from the medium, of entries
  std::uint64_t written_bytes = 0;
  std::uint64_t corrupt = 0;  // entries whose checksum was wrong: dropped
  std::uint64_t reads_failed = 0;
  bool degraded = false;        // the medium failed: no more inserts, or nothing at all
  std::string degraded_reason;  // the first failure
};

// One sample in a tier is an *entry*: the bytes of its stored fields, one after the other, with a
// checksum.
//
// Thread safety: every method may be called from any thread.
// Ownership: a tier outlives its pins and every call's `done`.
// Shutdown: the destructor waits until every `done` has run.
class Tier {
 public:
  // Runs exactly once per call, on any thread, inside the call too.
  using Done = std::function<void(Status)>;
  using DoneRead = std::function<void(Result<std::span<std::byte>>)>;

  // Keeps the memory of an entry from being used again, whatever is erased meanwhile. Move-only.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept { *this = std::move(other); }
    Pin& operator=(Pin&& other) noexcept {
      if (this != &other) {
        Reset();
        tier_ = std::exchange(other.tier_, nullptr);
        entry_ = other.entry_;
        bytes_ = other.bytes_;
      }
      return *this;
    }
    ~Pin() { Reset(); }

    void Reset() {
      if (tier_ != nullptr) std::exchange(tier_, nullptr)->Unpin(entry_);
    }
    [[nodiscard]] explicit operator bool() const { return tier_ != nullptr; }
    [[nodiscard]] Tier* tier() const { return tier_; }
    [[nodiscard]] void* entry() const { return entry_; }          // the tier's own
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of the sample, not rounded

   private:
    friend class Tier;
    Pin(Tier* tier, void* entry, std::uint64_t bytes) : tier_(tier), entry_(entry), bytes_(bytes) {}

    Tier* tier_ = nullptr;
    void* entry_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  virtual ~Tier() = default;

  // "RAM", "SSD /nvme/cache"
  [[nodiscard]] virtual std::string name() const = 0;

  // Whether bytes can be had with View() and CopyOut().
  [[nodiscard]] virtual bool in_memory() const = 0;

  // What room is counted in, and how many of them an entry of `bytes` takes: at least one, and no
  // room is lost beside, so that a plan which counts units knows what fits.
  [[nodiscard]] virtual std::uint64_t unit_bytes() const = 0;
  [[nodiscard]] std::uint64_t Units(std::uint64_t bytes) const {
    return bytes == 0 ? 1 : (bytes - 1) / unit_bytes() + 1;
  }

  // The entry of `sample`, pinned; an empty pin: there is none.
  [[nodiscard]] virtual Pin Find(SampleId sample) = 0;

  // In memory only: elsewhere View() gives nothing, the others abort. Bytes of an entry: where they
  // lie, if in one piece; or a copy. Not checked. The range must lie inside the entry.
  [[nodiscard]] virtual std::optional<std::span<const std::byte>> View(
      const Pin& pin, std::uint64_t offset, std::uint64_t size) const = 0;
  virtual void CopyOut(const Pin& pin, std::uint64_t offset, std::span<std::byte> to) const = 0;

  // In memory only. Compares the bytes with their checksum.
  //
  // Errors: DataLoss  they changed; the entry is erased and counted
  virtual Status Check(const Pin& pin) = 0;

  // Bytes of a buffer to read an entry into, which has to be aligned to 4096.
  [[nodiscard]] virtual std::size_t BufferBytes(const Pin& pin) const = 0;

  // Reads and checks all of an entry; `done` gets where in `buffer` it lies. Among reads that wait
  // the smallest `deadline` is first; reads go before inserts. Pin and buffer live until `done`. An
  // entry that was erased after it was pinned is read as before.
  //
  // Errors: DataLoss     the checksum is wrong, or bytes are missing; the entry is erased, counted
  //         Unavailable  the medium failed: the tier is degraded, the entry erased
  //         Cancelled    `stop` was requested before the read began
  virtual void Read(const Pin& pin, std::uint64_t deadline, std::span<std::byte> buffer,
                    std::stop_token stop, DoneRead done) = 0;

  // Keeps a sample, whose bytes are `parts`, one after the other: they live until `done`. OK too
  // if it is there already; while another insert of it runs, both end as that one does. Found when
  // `done` says OK, and not before. Inserts that wait are as many as the caller has memory for.
  //
  // Errors: ResourceExhausted  there is no room now
  //         Unavailable        the medium failed or is full: the tier is degraded
  //         Cancelled          it was erased meanwhile
  virtual void Insert(SampleId sample, std::vector<std::span<const std::byte>> parts,
                      Done done) = 0;

  // From now on it is not found, and an insert of it that runs is cancelled; its room is free when
  // the last pin and insert of it are gone.
  virtual void Erase(SampleId sample) = 0;

  // Samples that Find() would find, in no order.
  [[nodiscard]] virtual std::vector<SampleId> Held() const = 0;

  [[nodiscard]] virtual TierStats stats() const = 0;

 protected:
  Pin MakePin(void* entry, std::uint64_t bytes) { return {this, entry, bytes}; }
  virtual void Unpin(void* entry) = 0;
};

}  // namespace headrace
