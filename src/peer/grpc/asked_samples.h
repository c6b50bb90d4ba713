#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fetch/fetch.h"
#include "headrace/status.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/sample_message.h"
#include "peer/hedged_read.h"

namespace headrace {

// The samples that one node was asked for, or will be, until they end: validates answers, counts
// open bytes, finds late samples. Does not include gRPC.
//
// Thread safety: none, except Copy(): NodeLink has the lock.
class AskedSamples {
 public:
  // A fetch to request from a second node. `fetch` must not be used before `hedged` is claimed: it
  // may have ended.
  struct Handed {
    NodeNumber node = 0;  // the second
    Fetch* fetch = nullptr;
    SampleId sample{};
    std::uint64_t bytes = 0;
    std::uint64_t deadline = 0;  // of the fetch
    const FetchSource::Done* done = nullptr;
    std::stop_token stop;
    std::int64_t asked_ns = 0;
    std::int64_t due_ns = 0;
    std::shared_ptr<HedgedRead> hedged;  // null: the first node has failed
  };
  // A sample that is asked for, or a part of a parcel.
  struct Asked {
    Fetch* fetch = nullptr;  // with `hedged`: not to be used before that is claimed
    SampleId sample{};
    std::uint64_t bytes = 0;
    std::uint64_t deadline = 0;  // of the fetch
    const FetchSource::Done* done = nullptr;
    std::stop_token stop;
    std::int64_t hedge_ns = 0;  // when to ask the second node
    std::int64_t asked_ns = 0;
    std::int64_t due_ns = 0;
    std::optional<NodeNumber> second;    // not asked yet
    bool is_second = false;              // this node is
    std::optional<ParcelPart> parcel;    // if it is a part of one
    bool is_again = false;               // as PartAtNode::is_again
    std::shared_ptr<HedgedRead> hedged;  // null: one node is asked
    std::uint64_t received = 0;          // or on its way into memory
    std::uint64_t checksum = 0;
    bool sent = false;
    bool busy = false;   // bytes are being copied into its memory, without the lock
    bool whole = false;  // no more answers may come
  };
  // A fetch that has ended, and its status; its `done` is called without the lock.
  struct Ended {
    Fetch* fetch = nullptr;
    std::uint64_t bytes = 0;
    const FetchSource::Done* done = nullptr;
    Status status;
  };
  // Work to do without the lock.
  struct Todo {
    std::vector<Ended> ended;
    std::vector<Handed> handed;
    bool answered = false;  // the node answered a sample completely
  };
  // An answer that is valid so far; its part is copied without the lock.
  struct Arrived {
    ReceivedAnswer answer;
    std::uint64_t at = 0;     // of the part in the sample
    std::uint64_t bytes = 0;  // of the part
    Asked* asked = nullptr;
  };

  // `name`: of the node, for messages.
  AskedSamples(std::string name, PeerCounters& counters)
      : name_(std::move(name)), counters_(counters) {}

  [[nodiscard]] bool empty() const { return asked_.empty(); }
  // For messages: "sample 7 of node 2 (host:port)".
  [[nodiscard]] std::string NameOf(const Asked& asked) const;
  // A new stream: nothing was asked on it.
  void Begin();
  // Adds a sample to those to be asked for; Next() returns it.
  void Add(Asked asked);
  // Ends a sample that will not be asked for.
  void Refuse(Asked asked, Status why, Todo& todo);
  // The next sample to ask for, with its number, if the window has room for it. It is open then.
  // Samples of a failed part come first, and may exceed the window: other open requests may wait
  // until the node has freed these. Skips those that another node has given meanwhile. Valid
  // until the sample ends.
  std::optional<std::pair<std::uint64_t, const Asked*>> Next(Todo& todo);

  // Takes an answer, into `arrived` if it is about a sample that has not ended. Then Copy() and
  // Finish() follow; meanwhile nothing ends the sample.
  //
  // Errors: DataLoss  the answer was not asked for, or is too long: the stream is broken
  Status Take(ReceivedAnswer& answer, std::vector<Arrived>& arrived, Todo& todo);
  static void Copy(Arrived& arrived);
  void Finish(const Arrived& arrived, Todo& todo);

  // Ends requests that are too old, or of a run that has ended, and lists those of the others to
  // request from a second node. Returns whether the node is late.
  bool Sweep(std::int64_t now_ns, Todo& todo);
  void EndAll(const Status& why, Todo& todo);
  // From now on no second node is asked.
  void StopHandingOver() { hands_over_ = false; }

 private:
  using AllAsked = std::unordered_map<std::uint64_t, Asked>;

  [[nodiscard]] Status Refused(const Asked& asked, const ReceivedAnswer& answer);
  Status TakeLate(const ReceivedAnswer& answer);
  [[nodiscard]] bool IsSlow(std::int64_t now_ns) const;
  [[nodiscard]] bool HasRoom(const Asked& asked) const;
  void GiveUp(AllAsked::iterator here, Status status, Todo& todo);
  void End(AllAsked::iterator here, Status status, Todo& todo);

  const std::string name_;
  PeerCounters& counters_;
  bool hands_over_ = true;
  std::uint64_t last_number_ = 0;  // of the stream
  AllAsked asked_;                 // by number
  std::deque<std::uint64_t> to_send_;
  std::uint64_t open_bytes_ = 0;  // sent and not answered whole
  std::size_t sent_ = 0;          // samples of asked_ that were sent
  // Requests that were given up, and that the node may still answer.
  struct Late {
    std::uint64_t bytes = 0;  // that have not come
    bool is_part = false;     // of a parcel
  };
  std::unordered_map<std::uint64_t, Late> late_;  // by number
  std::size_t parts_ = 0;  // of asked_ and late_: parts of parcels that were sent
};

}  // namespace headrace
