#pragma once

// node/links/ measures what this node gets of the other nodes of a job, for `headrace profile
// --links`: through the service by which node processes give each other samples, with its token and
// its certificates.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headrace/part_options.h"
#include "headrace/status.h"
#include "peer/peer_options.h"

namespace headrace {

// One measurement.
struct LinkSlice {
  double rate = 0;               // bytes a second of all samples together
  std::uint64_t operations = 0;  // samples that came in the time measured
  std::uint64_t bytes = 0;       // of these
  double cpu_seconds = 0;        // of this process in that time
};

struct LinkLoad {
  std::uint64_t bytes = 0;      // of a sample: one of LinkProbe::kSampleBytes
  std::uint32_t in_flight = 1;  // samples that are asked for and have not come, up to kInFlightMax
};

struct LinkTime {
  std::int64_t duration_ns = 0;      // time measured, after a start that is not counted
  std::int64_t duration_max_ns = 0;  // a slower slice ends after this time with what it has counted
};

// A node that has samples of some sizes in memory, and asks the others for theirs.
//
// Thread safety: every method may be called from any thread; Measure() one at a time.
// Shutdown: the destructor waits until nothing is given any more.
class LinkProbe {
 public:
  static constexpr std::uint64_t kSampleBytes[] = {4096, 100 << 10, 1 << 20};
  static constexpr std::uint32_t kInFlightMax = 256;

  // Listens. Errors: those of PeerNode::Listen, ResourceExhausted  no memory (40 MiB)
  static Result<std::unique_ptr<LinkProbe>> Make(const PeerListen& listen);
  ~LinkProbe();
  LinkProbe(const LinkProbe&) = delete;
  LinkProbe& operator=(const LinkProbe&) = delete;

  // Where other nodes reach it: "host:port".
  [[nodiscard]] const std::string& address() const;

  // Tells it which nodes there are, and begins to give. Errors: those of PeerNode::Connect
  Status Connect(PeerGroup group);

  // Waits until all nodes have called it as often, up to the group's begin_ns: before the first
  // slice, so that all give; after the last, so that none ends too early. Calls `keep_waiting`
  // now and then.
  //
  // Errors: those of PeerNode::Agree; FailedPrecondition  another node is another build
  Status Meet(const std::function<bool()>& keep_waiting);

  // Asks the other nodes in turn for random samples, `in_flight` at a time.
  //
  // Errors: InvalidArgument     no such size, a number in flight out of range, no other node
  //         FailedPrecondition  before Connect()
  //         those of a node that does not give a sample, with its number
  Result<LinkSlice> Measure(LinkLoad load, LinkTime time);

 private:
  struct Impl;
  explicit LinkProbe(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
