#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/cell_pool.h"
#include "base/memory/buffer_pool.h"
#include "engine/blocks/residency.h"
#include "engine/loop/loop_context.h"
#include "fetch/held_samples.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

// Holds the samples that this node sends to others, in cells, from their block reads until the
// other node takes them: see docs/design/homes.md.
//
// Ready parts wait for memory in one queue for each node: first those that a request waits for,
// then those that are sent ahead. Nodes take turns. A node that has parts in transit gets more only
// while as much memory as these take stays free: so a slow node delays no other.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: Drop(), then ReleaseAll() when nothing is in flight, before destruction.
class Outbox final : public ResidencyClient {
 public:
  // `cells`, `memory`: of samples, and of parts on their way; null: the plan sends nothing.
  Outbox(LoopContext& loop, std::shared_ptr<CellPool> cells, std::shared_ptr<BufferPool> memory,
         Residency& blocks)
      : loop_(loop), cells_(std::move(cells)), memory_(std::move(memory)), blocks_(blocks) {}

  // Takes what a step sends, after Residency::Queue() of it.
  void Queue(std::vector<Parcel> parcels);
  // As HeldSamples::TakeParcel(). If the plan has not reached the part yet, `done` waits for it.
  void Take(NodeNumber to, const ParcelPart& part, TakenParcel done);

  // Gives parts that waited for memory, as far as memory allows.
  void GiveWaiting() {
    if (ready_ > 0) GiveAllWaiting();
  }

  // Whether samples of steps up to `sequence` (LoopContext::sequence) are still to be taken.
  [[nodiscard]] bool Owes(std::uint64_t sequence = ~std::uint64_t{0}) const;

  // The run has ended: gives no more. Returns the waiting requests, which the caller must answer.
  [[nodiscard]] std::vector<TakenParcel> Drop();
  void ReleaseAll();

  void OnKept(std::span<KeptBytes> kept) override;

 private:
  // A sample in transit.
  struct Sent {
    enum class State : std::uint8_t {
      kExpected,  // its bytes are not there
      kHeld,      // in cells
      kFailed,
      kGone,
    };
    SampleId sample{};
    std::uint64_t bytes = 0;
    CellRun cells = kNoCells;
    State state = State::kExpected;
  };
  // A parcel that was planned, from then until all of its bytes have gone.
  struct Held {
    std::vector<Sent> samples;
    std::map<std::uint32_t, Status> failures;  // by position
    std::uint64_t left = 0;                    // samples that have bytes and are not gone
    std::uint64_t sequence = 0;                // of the step
    bool ahead = false;                        // as Parcel::ahead
  };
  // A part that another node waits for.
  struct Waiting {
    ParcelPart part;
    TakenParcel done;
    std::uint64_t missing = 0;  // samples that are expected; without meaning before the plan's step
  };
  // All for one node.
  struct ToNode {
    std::uint64_t begin = 0;                              // parcels before it are gone
    std::deque<Held> parcels;                             // from `begin` on
    std::map<std::uint64_t, std::vector<Waiting>> asked;  // by parcel
    std::deque<Waiting> ready;        // whose samples have all come: they wait for memory
    std::deque<Waiting> ready_ahead;  // the same of parcels that are sent ahead
    std::size_t waiting = 0;          // in all three
    // Bytes of parts that were given and are not gone; tasks and the network change it, too.
    std::shared_ptr<std::atomic<std::uint64_t>> on_way =
        std::make_shared<std::atomic<std::uint64_t>>(0);
  };
  // The places of samples that were requested from Residency, by RowRef::slot.
  struct Place {
    NodeNumber to = 0;
    std::uint32_t position = 0;
    std::uint64_t parcel = 0;
  };

  void Queue(Parcel parcel);
  void Keep(const Place& place, Held& held, KeptBytes& kept);
  [[nodiscard]] static Status Check(const Held& held, const ParcelPart& part);
  void Arrived(const Place& place);
  [[nodiscard]] static Status CheckKnown(const ToNode& to, const ParcelPart& part);
  void Give(NodeNumber to, Waiting waiting);
  void GiveAllWaiting();
  bool GiveNext(ToNode& to, std::deque<Waiting>& ready);
  bool Serve(ToNode& to, Waiting& waiting);
  [[nodiscard]] std::optional<Buffer> Acquire(const ToNode& to, std::uint64_t bytes, bool& waits);
  void ForgetGone(ToNode& to);

  LoopContext& loop_;
  const std::shared_ptr<CellPool> cells_;
  const std::shared_ptr<BufferPool> memory_;
  Residency& blocks_;
  std::map<NodeNumber, ToNode> nodes_;
  std::size_t ready_ = 0;  // parts of all nodes that wait for memory
  NodeNumber turn_ = 0;    // the node after the one that got memory last
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_places_;
};

}  // namespace headrace
