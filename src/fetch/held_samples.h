#pragma once

#include <functional>

#include "base/ids.h"
#include "base/status.h"
#include "tier/tier.h"

namespace headrace {

// Gets the entry of a sample, or why it is not there. Called once, on any thread; the caller may
// hold locks: it has to be quick, and must not call back.
using TakenEntry = std::function<void(Result<Tier::EntryRef>)>;

// What a node has for the other nodes of its job: the counterpart of a FetchSource.
//
// Thread safety: every method may be called from any thread.
class HeldSamples {
 public:
  virtual ~HeldSamples() = default;

  // Calls `done` once, on any thread, inside the call too, with the entry of a sample.
  //
  // Errors: NotFound           the node does not keep it now
  //         ResourceExhausted  the node is bringing too many; Unavailable  it has no run
  //         those of reading it and of inserting it
  virtual void Take(SampleId sample, TakenEntry done) = 0;
};

}  // namespace headrace
