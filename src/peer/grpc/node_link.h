#pragma once

// The client of one other node. Included by peer_node.cc only: it includes gRPC.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fetch/fetch.h"
#include "headrace/status.h"
#include "peer/grpc/asked_samples.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"
#include "peer/grpc/sample_message.h"
#include "peer/rate_budget.h"

namespace headrace {

// Fetches samples from one node, over one stream, which it opens when there is something to ask and
// opens again after a failure. Requests as much at a time as the window holds; the rest waits.
//
// A node that does not answer in time, or whose stream breaks, several times in a row is not asked
// for a while: its samples fail at once.
//
// If a fetch names a second node, `ask_second` asks that node when this one has failed, or has sent
// nothing for a part of its time. Then both may answer: see HedgedRead.
//
// Thread safety: every method may be called from any thread.
// Shutdown: Close(), which waits for the stream, and then the destructor; neither on a thread of
// gRPC.
class NodeLink {
 public:
  struct Options {
    NodeNumber node = 0;  // the other one
    NodeNumber own = 0;
    NodeNumber nodes = 0;  // of the job
    std::string address;
    std::string token;
    std::int64_t answer_ns = 0;  // a sample that takes longer fails
    std::int64_t parcel_ns = 0;  // a part of a parcel that takes longer fails
    std::int64_t hedge_ns = 0;   // a second node is asked for one that takes longer
  };
  using Handed = AskedSamples::Handed;
  // Shared with the links to other nodes.
  struct Shared {
    PeerCounters& counters;
    RateBudget& asking;
    // Called without a lock.
    std::function<void(std::vector<Handed>)> ask_second;
  };
  NodeLink(Options options, std::shared_ptr<grpc::Channel> channel, const Shared& shared);
  ~NodeLink();

  // As FetchSource::Read(), for fetches from this node.
  void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
            const FetchSource::Done& done) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Requests a sample that another node was asked for first.
  void ReadSecond(std::span<Handed> handed) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Fails requests that are too old, or of a run that has ended; sends those that waited for the
  // rate budget. Returns whether it sent any. Called every few milliseconds.
  bool Sweep(std::int64_t now_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool is_down() const HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] peers::v1::Peers::Stub& stub() { return *stub_; }
  [[nodiscard]] const Options& options() const { return options_; }
  // "node 2 (host:port)"
  [[nodiscard]] std::string Name() const;

 private:
  class Stream;
  using Asked = AskedSamples::Asked;
  using Todo = AskedSamples::Todo;

  [[nodiscard]] std::optional<NodeNumber> SecondOf(const SampleAtNode& sample) const;
  void Do(Todo& todo) const;
  static void Tell(std::vector<AskedSamples::Ended>& ended);
  void Ask(Asked asked, std::int64_t now_ns, Todo& todo) HEADRACE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] Status DownError(const Asked& asked) const HEADRACE_LOCKS_REQUIRED(mutex_);
  void Failed() HEADRACE_LOCKS_REQUIRED(mutex_);
  void OpenStream() HEADRACE_LOCKS_REQUIRED(mutex_);
  void CancelStream() HEADRACE_LOCKS_REQUIRED(mutex_);
  bool Send(Todo& todo) HEADRACE_LOCKS_REQUIRED(mutex_);
  // Called by the stream.
  bool OnAnswers(Pieces::List message) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnSent() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnReadEnd() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnStreamEnd(const grpc::Status& status) HEADRACE_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const Shared shared_;
  PeerCounters& counters_;
  const std::unique_ptr<peers::v1::Peers::Stub> stub_;
  grpc::TemplatedGenericStub<peers::v1::SampleRequests, grpc::ByteBuffer> samples_stub_;

  mutable Mutex mutex_;
  CondVar ended_;
  std::unique_ptr<Stream> stream_ HEADRACE_GUARDED_BY(mutex_);  // null: there is none
  // Streams that have ended. A call holds its channel, and the last reference to a channel must not
  // be dropped on a thread of gRPC, which would wait for itself: Sweep() and Close() destroy them.
  std::vector<std::unique_ptr<Stream>> ended_streams_ HEADRACE_GUARDED_BY(mutex_);
  bool sending_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;  // the stream: its end follows
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;
  int handing_ HEADRACE_GUARDED_BY(mutex_) = 0;  // that stream ends are handing over
  AskedSamples asked_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t failures_ HEADRACE_GUARDED_BY(mutex_) = 0;  // in a row
  std::int64_t down_until_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
