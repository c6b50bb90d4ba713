#pragma once

// share/ lets several jobs of one process read each range of a dataset once. See
// docs/design/shared-reads.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "headrace/ids.h"

namespace headrace {

inline constexpr std::uint32_t kShareJobsMax = 64;

// A range that a ShareTable knows. Never reused.
enum class ShareEntry : std::uint64_t {};

struct ShareTableOptions {
  std::uint64_t capacity_bytes = 0;  // as charged
  // A range that is read for longer is not waited for.
  std::int64_t wait_max_ns = 0;
};

// A part of a request: a range that is held, or is being read.
struct SharePiece {
  ShareEntry entry{};
  ByteRange range;      // all of the entry; may begin before the request, and end after it
  bool is_new = false;  // the caller reads it, then calls Held() or Drop()
};

// Decides which ranges of which datasets a bounded memory holds for several jobs. Ranges of a
// dataset do not overlap.
//
//   absent --Take()--> being read --Held()--> held --> absent: evicted, replaced, or Drop()
//
// A held range is *wanted* if a job that has joined its dataset has not taken it since it was
// read. Room for new ranges comes from these, in this order:
//   1. the oldest range that nobody wants;
//   2. if another job wants the new ranges, the oldest wanted one that a job left that has ended;
//   3. if the job is within its quota, the oldest of the job that is furthest above its own, if
//      that one stays within or above its quota;
//   4. every kOwnEvery-th time, the oldest of the job itself.
// If there is none, the caller reads past the share.
//
// Thread safety: none. No clock: the time is an argument.
class ShareTable {
 public:
  using Job = std::uint32_t;
  // What memory for a range is charged.
  using Charge = std::function<std::uint64_t(ByteRange)>;

  static constexpr std::uint32_t kOwnEvery = 8;

  explicit ShareTable(ShareTableOptions options) : options_(options) {}

  // Nothing: kShareJobsMax jobs have joined.
  std::optional<Job> Join(const std::string& dataset, Charge charge);
  void Leave(Job job);

  // The pieces that contain all of `extent`, in order, which `job` has thereby used. Absent ranges
  // less than `gap_bytes` apart become one piece. Empty: there is no room, or another job reads a
  // part of it for too long: the caller reads it alone.
  std::vector<SharePiece> Take(Job job, const Extent& extent, std::uint64_t gap_bytes,
                               std::int64_t now_ns);
  // The bytes of a new piece are there.
  void Held(ShareEntry entry);
  // They will not come; or they are damaged. Does nothing if the entry is gone.
  void Drop(ShareEntry entry);
  // The held entries that overlap `extent`, of the dataset of `job`.
  [[nodiscard]] std::vector<ShareEntry> Find(Job job, const Extent& extent) const;

  // The entries that are gone since the last call.
  std::vector<ShareEntry> TakeGone() { return std::exchange(gone_, {}); }

  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }
  // What the job's wanted ranges are charged, and those that it reads; and its quota.
  [[nodiscard]] std::uint64_t BytesOf(Job job) const { return jobs_[job]->bytes; }
  [[nodiscard]] std::uint64_t quota() const;

 private:
  using Place = std::pair<std::uint64_t, std::uint64_t>;  // object, offset
  using List = std::list<ShareEntry>;
  using Jobs = std::uint64_t;  // a bit a job

  struct Dataset {
    std::map<Place, ShareEntry> entries;
    Jobs readers = 0;
  };
  struct Entry {
    Dataset* dataset = nullptr;
    Place place;
    std::uint64_t size = 0;
    std::uint64_t charged = 0;
    Jobs used = 0;
    std::optional<Job> owner;    // nothing: it has left
    std::int64_t since_ns = 0;   // while it is being read
    List* in = nullptr;          // null: it is being read
    List::iterator at;           // in it
    bool counted = false;        // in the bytes of its owner
    std::uint64_t made_by = 0;   // number of a Take()
    std::uint64_t taken_by = 0;  // the newest Take() that needs it

    [[nodiscard]] std::uint64_t end() const { return place.second + size; }
  };
  struct JobState {
    std::string dataset;
    Charge charge;
    List kept;                // its wanted ranges
    std::uint64_t bytes = 0;  // of those, and of ranges that it reads
    std::uint32_t refusals = 0;
  };

  [[nodiscard]] static Jobs Bit(Job job) { return Jobs{1} << job; }
  // The entries that overlap `extent`, by place.
  [[nodiscard]] std::vector<ShareEntry> Overlapping(const Dataset& dataset,
                                                    const Extent& extent) const;
  // The ranges of `extent` to be read. `known`: those that overlap it; `replaced`: those of them
  // that are read again.
  std::vector<ByteRange> Absent(const Extent& extent, std::span<const ShareEntry> known,
                                std::uint64_t gap_bytes, std::vector<ShareEntry>& replaced) const;
  // `wanted`: another job wants what is to be read.
  bool MakeRoom(Job job, std::uint64_t bytes, bool wanted);
  [[nodiscard]] std::optional<ShareEntry> Victim(Job job, std::uint64_t bytes, bool wanted,
                                                 bool own) const;
  // Not what the current Take() needs.
  [[nodiscard]] std::optional<ShareEntry> OldestOf(const List& list) const;
  void Add(Job job, Dataset& dataset, ObjectId object, ByteRange range, std::int64_t now_ns);
  // Puts a held entry into the list where it belongs, and counts it.
  void Sort(ShareEntry id, Entry& entry);
  void Count(Entry& entry, bool counted);
  void EraseIfUnused(const Dataset& dataset);

  const ShareTableOptions options_;
  std::array<std::optional<JobState>, kShareJobsMax> jobs_;
  std::unordered_map<std::string, Dataset> datasets_;
  std::unordered_map<ShareEntry, Entry> entries_;
  List unwanted_;   // held; the oldest first, as in other lists
  List ownerless_;  // held and wanted
  std::uint64_t used_bytes_ = 0;
  std::uint64_t next_entry_ = 0;
  std::uint64_t takes_ = 0;
  std::vector<ShareEntry> gone_;
};

}  // namespace headrace
