#pragma once

#include <cstdint>
#include <functional>

#include "fetch/fetch.h"
#include "fetch/held_samples.h"
#include "sim/job/shared_rate.h"

namespace headrace {

// The other nodes of a job in virtual time, as one of them asks for their samples, or for parts of
// parcels. A sample takes the time of its node's tier or of the link, whichever is more; a part,
// which is in memory there, that of the link.
//
// Thread safety: none; a simulation is one thread.
// Ownership: `link` is the caller's and outlives it.
class TimedNodes final : public FetchSource {
 public:
  // HeldSamples::Take() of a node.
  using Take = std::function<void(NodeNumber node, SampleId sample, std::uint64_t deadline,
                                  TakenEntry done)>;

  // HeldSamples::TakeParcel() of node `from`, to node `to`.
  using TakePart =
      std::function<void(NodeNumber from, NodeNumber to, const ParcelPart& part, TakenParcel done)>;

  struct Others {
    Take take;
    TakePart take_part;
  };

  // `link`: its users are the nodes that get. `scale`: bytes that one byte of a sample stands for.
  TimedNodes(SharedRate& link, NodeNumber node, double scale, Others others)
      : link_(link), node_(node), scale_(scale), others_(std::move(others)) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override { return fetch.bytes(); }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
            const Done& done) override;

 private:
  void ReadPart(Fetch& fetch, const PartAtNode& wanted, const Done& done);
  void ReadSample(Fetch& fetch, const SampleAtNode& wanted, const Done& done);
  void Send(Fetch& fetch, Tier::EntryRef entry, const Done& done);

  SharedRate& link_;
  const NodeNumber node_;
  const double scale_;
  const Others others_;
};

}  // namespace headrace
