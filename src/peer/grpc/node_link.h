#pragma once

// One other node, as this one asks it. Seen by peer_node.cc alone: it includes gRPC.

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "fetch/fetch.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"

namespace headrace {

// Fetches samples from one node, over one stream, which it opens when there is something to ask and
// opens again after a failure. Asks for so much at a time as the window holds; the rest waits.
//
// A node that does not answer in time, or whose stream breaks, several times in a row is not asked
// for a while: its samples fail at once.
//
// Thread safety: every method may be called from any thread.
// Shutdown: Close(), which waits for the stream, and then the destructor; neither on a thread of
// gRPC.
class NodeLink {
 public:
  struct Options {
    NodeNumber node = 0;
    std::string address;
    std::string token;
    std::int64_t answer_ns = 0;  // a sample that takes longer fails
  };
  NodeLink(Options options, std::shared_ptr<grpc::Channel> channel, PeerCounters& counters);
  ~NodeLink();

  // As FetchSource::Read(); of fetches whose node this is.
  void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
            const FetchSource::Done& done) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Fails what was asked too long ago, or for a run that has ended. Called every few milliseconds.
  void Sweep(std::int64_t now_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool is_down() const HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] peers::v1::Peers::Stub& stub() { return *stub_; }
  [[nodiscard]] const Options& options() const { return options_; }
  // "node 2 (host:port)"
  [[nodiscard]] std::string Name() const;

 private:
  class Stream;
  struct Asked {
    Fetch* fetch = nullptr;
    const FetchSource::Done* done = nullptr;
    std::stop_token stop;
    std::int64_t due_ns = 0;
    std::uint64_t received = 0;
    std::uint64_t checksum = 0;
    bool sent = false;
  };
  // A fetch that has ended, and how; its done is called without the lock.
  struct Ended {
    Fetch* fetch = nullptr;
    const FetchSource::Done* done = nullptr;
    Status status;
  };
  using AllEnded = std::vector<Ended>;

  static void Tell(AllEnded& ended);
  void End(std::unordered_map<std::uint64_t, Asked>::iterator asked, Status status, AllEnded& ended)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void EndAll(const Status& why, AllEnded& ended) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Failed() HEADRACE_LOCKS_REQUIRED(mutex_);
  void OpenStream() HEADRACE_LOCKS_REQUIRED(mutex_);
  void CancelStream() HEADRACE_LOCKS_REQUIRED(mutex_);
  void Send() HEADRACE_LOCKS_REQUIRED(mutex_);
  // Called by the stream.
  bool OnAnswers(const peers::v1::SampleAnswers& answers) HEADRACE_LOCKS_EXCLUDED(mutex_);
  Status OnAnswer(const peers::v1::SampleAnswer& answer, AllEnded& ended)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void OnSent() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnReadEnd() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnStreamEnd(const grpc::Status& status) HEADRACE_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const std::unique_ptr<peers::v1::Peers::Stub> stub_;
  PeerCounters& counters_;

  mutable Mutex mutex_;
  CondVar ended_;
  std::unique_ptr<Stream> stream_ HEADRACE_GUARDED_BY(mutex_);  // null: there is none
  // Streams that have ended. A call holds its channel, and the last reference to a channel must not
  // go on a thread of gRPC, which would wait for itself: Sweep() and Close() destroy them.
  std::vector<std::unique_ptr<Stream>> ended_streams_ HEADRACE_GUARDED_BY(mutex_);
  bool sending_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;  // the stream: its end follows
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::uint64_t last_number_ HEADRACE_GUARDED_BY(mutex_) = 0;                   // of the stream
  std::unordered_map<std::uint64_t, Asked> asked_ HEADRACE_GUARDED_BY(mutex_);  // by number
  std::deque<std::uint64_t> to_send_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t open_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;  // sent and not answered whole
  // Samples that were given up; the node may still send them.
  std::unordered_map<std::uint64_t, std::uint64_t> late_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t failures_ HEADRACE_GUARDED_BY(mutex_) = 0;  // in a row
  std::int64_t down_until_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
