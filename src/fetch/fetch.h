#pragma once

// fetch/ is the one way to read: from "these stored bytes" to bytes in memory. It takes memory to
// read into, starts reads at a source (storage, a tier, another node), counts those in flight,
// verifies the bytes. It knows extents, entries and buffers, but not rows, lanes, orders or
// placements: the client decides where the bytes go. docs/design/fetch.md describes all of it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <variant>

#include "base/check.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "tier/tier.h"

namespace headrace {

class FetchClient;
class FetchSource;

// Other nodes that have a sample by the plan: the first to ask, and a second if the first does not
// answer.
struct Holders {
  NodeNumber first = 0;
  std::optional<NodeNumber> second;

  friend bool operator==(const Holders&, const Holders&) = default;
};

// Consecutive samples of a parcel, which another node sends this one: Parcel of plan/order.h.
struct ParcelPart {
  std::uint64_t round = 0;   // the run: its number on all nodes, OtherNodes::round()
  std::uint64_t parcel = 0;  // from that node to this one: Parcel::number
  std::uint32_t first = 0;   // position in the parcel
  std::uint32_t count = 0;   // samples
  // NextHashOfIds() of these samples, from 0 on: equal if both nodes planned the same ones.
  std::uint64_t ids = 0;

  friend bool operator==(const ParcelPart&, const ParcelPart&) = default;
};

// A number for samples in order.
inline std::uint64_t NextHashOfIds(std::uint64_t before, SampleId next) {
  return (before ^ Raw(next)) * 0x9e3779b97f4a7c15u + 1;
}

// Whether somebody waits for what is read ahead, and since when. A read that nobody waits for is
// never late.
//
// Thread safety: every method may be called from any thread.
class StepWait {
 public:
  // Since `since_ns` somebody waits for a step, and for reads with deadlines up to `deadline`.
  void Begin(std::int64_t since_ns, std::uint64_t deadline) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    since_ns_ = since_ns;
    deadline_ = deadline;
  }
  void End() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    since_ns_.reset();
  }
  // When the wait for a read with this deadline began; std::nullopt: nobody waits for it.
  [[nodiscard]] std::optional<std::int64_t> SinceNs(std::uint64_t deadline) const
      HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return deadline <= deadline_ ? since_ns_ : std::nullopt;
  }

 private:
  mutable Mutex mutex_;
  std::optional<std::int64_t> since_ns_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t deadline_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

// A sample that other nodes have: all its stored bytes, one field after the other.
struct SampleAtNode {
  Holders nodes;  // the second is asked if the first is late
  SampleId sample{};
  std::uint64_t bytes = 0;
};

// A part of a parcel that another node sends: all stored bytes of its samples, one after the other.
struct PartAtNode {
  ParcelPart part;
  std::uint64_t bytes = 0;
  const StepWait* wait = nullptr;  // tells when it may be late; null: from now on
  NodeNumber node = 0;
  bool is_again = false;  // repeats a failed part: the node may wait until the first try has ended
};

// What a fetch reads: a range of an object in storage, an entry of a tier, a sample or a part of a
// parcel of another node. Each has a source: FetchSources.
using FetchFrom = std::variant<Extent, const Tier::EntryRef*, SampleAtNode, PartAtNode>;

// One read. A client derives from it what the read is for, owns it, and keeps it, with the entry if
// it reads one, until OnFetched() has been called if it was started.
struct Fetch {
  FetchClient* client = nullptr;
  FetchFrom from;
  // A source that queues reads starts the smallest deadline first; so does another node, as all
  // nodes of a run count deadlines alike.
  std::uint64_t deadline = 0;
  std::span<std::byte> room;  // memory of the client's; empty: `buffer` is read into
  Buffer buffer;              // taken by Fetcher::Acquire(), or by the client
  std::span<std::byte> data;  // the bytes read: set by the client
  bool checked = false;       // the source compares `data` with a checksum of its own
  bool not_held = false;      // ReadNow() has just said kNotHeld
  bool past_share = false;    // the bytes that jobs share were wrong: see ReadRequest

  [[nodiscard]] std::span<std::byte> memory() const { return room.empty() ? buffer.bytes() : room; }

  // What is read; the fetch must read a `From`.
  template <typename From>
  [[nodiscard]] const From& Reads() const {
    const From* const of = std::get_if<From>(&from);
    HEADRACE_CHECK(of != nullptr);
    return *of;
  }
  [[nodiscard]] const Extent& extent() const { return Reads<Extent>(); }
  [[nodiscard]] const Tier::EntryRef& entry() const { return *Reads<const Tier::EntryRef*>(); }
  [[nodiscard]] bool in_storage() const { return std::holds_alternative<Extent>(from); }
  [[nodiscard]] bool at_node() const {
    return std::holds_alternative<SampleAtNode>(from) || std::holds_alternative<PartAtNode>(from);
  }
  // The other node that is asked for it.
  [[nodiscard]] std::optional<NodeNumber> node() const {
    if (const auto* const sample = std::get_if<SampleAtNode>(&from)) return sample->nodes.first;
    if (const auto* const part = std::get_if<PartAtNode>(&from)) return part->node;
    return std::nullopt;
  }
  // How many bytes are read.
  [[nodiscard]] std::uint64_t bytes() const {
    if (const auto* const of = std::get_if<Extent>(&from)) return of->range.size;
    if (const auto* const sample = std::get_if<SampleAtNode>(&from)) return sample->bytes;
    if (const auto* const part = std::get_if<PartAtNode>(&from)) return part->bytes;
    return entry().bytes();
  }
};

// Whom a read is for.
class FetchClient {
 public:
  virtual ~FetchClient() = default;

  // The read has ended: `data` are its bytes, inside the fetch's memory, or the error of the
  // source. Called by the loop of the fetcher's owner, once per fetch that was started.
  virtual void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) = 0;
};

// Where bytes come from. Implementations pass source_conformance.h, and read fetches of the kinds
// that FetchSources says.
//
// Thread safety: every method may be called from any thread.
// Ownership: fetches and their memory live until `done` has run for them.
// Shutdown: the owner of the source waits until every `done` has run.
class FetchSource {
 public:
  // Runs once per fetch, on any thread, inside Read() too.
  using Done = std::function<void(Fetch&, Result<std::span<std::byte>>)>;

  virtual ~FetchSource() = default;

  // Bytes of memory that a read of `fetch` needs, which must be aligned to kBufferAlignment.
  [[nodiscard]] virtual std::size_t BufferBytes(const Fetch& fetch) const = 0;

  // Starts to read all of `fetches` into their memory. `done` outlives the reads.
  //
  // Errors: those of ByteStore::Read() and Tier::Read(); Cancelled: `stop` was requested before
  virtual void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
                    const Done& done) = 0;

  // As ByteStore has them: reads at once what needs no device.
  virtual ReadNowAnswer ReadNow(const Fetch& /*fetch*/, std::span<std::byte> /*dst*/) {
    return ReadNowAnswer::kNotAsked;
  }
  virtual bool MayReadNow() { return false; }
  // Of ranges in storage: a source of other bytes leaves their answers as they are.
  virtual void ReadAllNow(std::span<NowRead> /*reads*/) {}
  virtual bool HoldsNow(const Extent& /*extent*/) { return false; }
  [[nodiscard]] virtual bool shares() const { return false; }
};

// The source of each kind of fetch: a row for each alternative of FetchFrom.
struct FetchSources {
  FetchSource& storage;            // Extent
  FetchSource& entries;            // Tier::EntryRef
  FetchSource* nodes = nullptr;    // SampleAtNode; null: other nodes cannot be asked
  FetchSource* parcels = nullptr;  // PartAtNode; null: other nodes send nothing

  [[nodiscard]] FetchSource& Of(const Fetch& fetch) const {
    if (fetch.in_storage()) return storage;
    if (std::holds_alternative<const Tier::EntryRef*>(fetch.from)) return entries;
    FetchSource* const source = std::holds_alternative<SampleAtNode>(fetch.from) ? nodes : parcels;
    HEADRACE_CHECK(source != nullptr);
    return *source;
  }
};

}  // namespace headrace
