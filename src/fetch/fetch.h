#pragma once

// fetch/ is the one way to read: from "these stored bytes" to bytes in memory. It takes memory to
// read into, starts reads at a source (storage, a tier, another node), counts those in flight,
// verifies what came. It knows extents, entries and buffers; nothing of rows, lanes, orders,
// placements: where the bytes go is the client's business. docs/design/fetch.md has the whole.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "base/ids.h"
#include "base/memory/buffer_pool.h"
#include "base/status.h"
#include "store/byte_store.h"
#include "tier/tier.h"

namespace headrace {

class FetchClient;
class FetchSource;

// The number of a node among those of the job.
using NodeNumber = std::uint32_t;

inline constexpr NodeNumber kNoNode = 0xffff'ffff;

// Other nodes that have a sample, as the plan says: the one to ask, and one to ask if that does not
// answer.
struct Holders {
  NodeNumber first = kNoNode;
  NodeNumber second = kNoNode;

  friend bool operator==(const Holders&, const Holders&) = default;
};

// One read: a range of an object in storage, an entry of a tier, or a sample that another node has.
// A client derives from it what the read is for, owns it, and keeps it until OnFetched() has been
// called if it was started.
struct Fetch {
  FetchSource* source = nullptr;
  FetchClient* client = nullptr;
  Extent extent;                          // of an entry, or of a node's sample, its size counts
  const Tier::EntryRef* entry = nullptr;  // null: `extent` is read, or `sample` at `node`
  NodeNumber node = kNoNode;              // another node, which has all stored bytes of ...
  SampleId sample{};                      // ... this
  NodeNumber second_node = kNoNode;       // another that may: asked if the first is late
  std::uint64_t deadline = 0;             // a source that lets reads wait starts the smallest first
  std::span<std::byte> room;              // memory of the client's; empty: `buffer` is read into
  Buffer buffer;                          // taken by Fetcher::Acquire(), or by the client
  std::span<std::byte> data;              // what it brought: set by the client
  bool checked = false;                   // the source compares `data` with a checksum of its own
  bool not_held = false;                  // ReadNow() has just said kNotHeld

  [[nodiscard]] std::span<std::byte> memory() const { return room.empty() ? buffer.bytes() : room; }
};

// Whom a read is for.
class FetchClient {
 public:
  virtual ~FetchClient() = default;

  // The read has ended: `data` are its bytes, inside the fetch's memory, or the error of the
  // source. Called by the loop of the fetcher's owner, once per fetch that was started.
  virtual void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) = 0;
};

// Where bytes come from. Implementations pass source_conformance.h.
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
};

}  // namespace headrace
