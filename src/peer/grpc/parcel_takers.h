#pragma once

// Included by peer_node.cc only: it includes gRPC.

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "peer/grpc/node_link.h"

namespace headrace {

// Finds out which other nodes still take parcels of a run that this node has ended. Asks them
// periodically, and does not wait.
//
// Thread safety: every method may be called from any thread.
// Shutdown: Close(), and then the destructor; neither on a thread of gRPC.
class ParcelTakers {
 public:
  static constexpr std::int64_t kAskEveryNs = 100'000'000;
  static constexpr std::int64_t kCallMs = 5'000;
  // A node is gone if its process does not listen this many times in a row.
  static constexpr int kFailuresMax = 30;

  // The node that asks, and the run.
  struct Run {
    NodeNumber node = 0;
    std::uint64_t process = 0;
    std::uint64_t round = 0;

    friend bool operator==(const Run&, const Run&) = default;
  };

  ParcelTakers();
  ~ParcelTakers();
  ParcelTakers(const ParcelTakers&) = delete;
  ParcelTakers& operator=(const ParcelTakers&) = delete;

  // Whether any of the nodes of `links` may still take parcels of the run, which is so until it
  // says no or is gone. After the first call for a run, Sweep() asks them. A node that does not
  // answer, because it is stopped or far, may still take parcels.
  bool Any(const Run& run, const std::vector<std::shared_ptr<NodeLink>>& links)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Asks the nodes that are due. Called every few milliseconds.
  void Sweep(std::int64_t now_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Ends all calls and starts no more.
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;
  using Calls = std::list<std::unique_ptr<Call>>;
  struct Taker {
    std::shared_ptr<NodeLink> link;
    std::int64_t next_ns = 0;  // when it is asked
    int failures = 0;          // in a row
    bool asking = false;
    bool gone = false;
  };

  void OnEnd(const Call& call, bool takes, bool listens) HEADRACE_LOCKS_REQUIRED(mutex_);
  void TakeEnded(Calls& to) HEADRACE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar ended_;
  Run run_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Taker> takers_ HEADRACE_GUARDED_BY(mutex_);
  Calls calls_ HEADRACE_GUARDED_BY(mutex_);
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
