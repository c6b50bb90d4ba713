#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/memory/buffer_pool.h"
#include "fetch/fetch.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "tier/tier.h"

namespace headrace {

// Gets the entry of a sample, or the reason why there is none. Called once, on any thread. The
// caller may hold locks, so it must return quickly and not call back.
using TakenEntry = std::function<void(Result<Tier::EntryRef>)>;

// Bytes that their holder owns, in memory that counts in a budget until they are freed.
struct OwnedBytes {
  Buffer memory;
  // Its destructor reports that the bytes are gone, before the memory is released, which wakes
  // those that wait for memory.
  std::shared_ptr<void> gone;
  std::size_t size = 0;
  bool ahead = false;  // as Parcel::ahead: it may wait for others

  [[nodiscard]] std::span<std::byte> bytes() const { return memory.bytes().first(size); }
};

// The same of a part of a parcel.
using TakenParcel = std::function<void(Result<OwnedBytes>)>;

// The most parts of parcels that a node requests from another one at a time. A node that requests
// more than twice as many is refused.
inline constexpr std::size_t kPartsOpenMax = 1024;

// The samples that a node gives the other nodes of its job: the counterpart of a FetchSource.
//
// Thread safety: every method may be called from any thread.
class HeldSamples {
 public:
  virtual ~HeldSamples() = default;

  // Calls `done` once, on any thread, inside the call too, with the entry of a sample. `deadline`:
  // as in the Fetch of the node that asks: all nodes of a run count alike.
  //
  // Errors: NotFound           the node does not keep it now
  //         ResourceExhausted  the node is bringing too many; Unavailable  it has no run
  //         those of reading it and of inserting it
  virtual void Take(SampleId sample, std::uint64_t deadline, TakenEntry done) = 0;

  // Calls `done` once, on any thread, inside the call too, with all stored bytes of the samples of
  // a part of a parcel to node `to`, one after the other, once they are read. They are given once.
  //
  // Errors: InvalidArgument    there is no such part, or it was given before
  //         ResourceExhausted  the other node waits for more than 2 * kPartsOpenMax parts; there is
  //                            no memory
  //         Unavailable        the node is not in that run
  //         DataLoss           a sample cannot be read: nothing is given, and each may be taken
  //                            alone
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those that override it keep it.
  virtual void TakeParcel(NodeNumber /*to*/, const ParcelPart& /*part*/, TakenParcel done) {
    done(Status(StatusCode::kInvalidArgument, "this node sends no parcels"));
  }
};

}  // namespace headrace
