#pragma once

// The server side of a node. Included by peer_node.cc only: it includes gRPC.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "peer/agreement.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"
#include "peer/leased_samples.h"
#include "peer/plan_ledger.h"
#include "peer/rate_budget.h"
#include "peer/round_robin.h"

namespace headrace {

// Samples() receives and sends messages as bytes: sample_message.h.
using PeerCalls = peers::v1::Peers::WithRawCallbackMethod_Samples<
    peers::v1::Peers::WithCallbackMethod_Takes<peers::v1::Peers::WithCallbackMethod_Compare<
        peers::v1::Peers::WithCallbackMethod_Agree<peers::v1::Peers::Service>>>>;

// Serves the calls of other nodes. Before Open() and without the token, every call is refused.
//
// Thread safety: every method may be called from any thread.
// Shutdown: destroy it after the gRPC server.
class PeerService final : public PeerCalls {
 public:
  // Dependencies, which outlive the service.
  struct Parts {
    LeasedSamples& leased;
    PeerCounters& counters;
    RateBudget& giving;
  };
  // A stream to another node, as Sweep() sees it. Its methods may be called from any thread.
  class Served {
   public:
    virtual ~Served() = default;
    // Continues to write, if it can. Returns whether it wrote.
    virtual bool Pump() = 0;
    // Releases all entries: their samples are not given.
    virtual void Withdraw() = 0;
  };

  explicit PeerService(Parts parts) : parts_(parts) {}

  // The facts of the job, needed before calls are served.
  struct Job {
    std::string token;
    NodeNumber node = 0;  // this one
    NodeNumber nodes = 0;
  };
  // From now on calls with the job's token are served. `agreement` and `ledger` outlive the
  // service.
  void Open(Job job, Agreement& agreement, PlanLedger& ledger) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The run from which this node takes parcels; 0: none.
  void Take(std::uint64_t round) { taken_round_ = round; }
  void StopTaking(std::uint64_t round) { taken_round_.compare_exchange_strong(round, 0); }
  // The process of another node that began a run last, as that node reports it.
  void Heard(NodeNumber node, std::uint64_t process) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Continues streams that waited for the rate budget, in turns; releases entries that must be
  // returned. Called every few milliseconds, by one thread.
  void Sweep() HEADRACE_LOCKS_EXCLUDED(mutex_);

  grpc::ServerReadReactor<peers::v1::AgreePart>* Agree(grpc::CallbackServerContext* context,
                                                       peers::v1::AgreeReply* reply) override;
  grpc::ServerUnaryReactor* Compare(grpc::CallbackServerContext* context,
                                    const peers::v1::Plan* plan,
                                    peers::v1::CompareReply* reply) override;
  grpc::ServerUnaryReactor* Takes(grpc::CallbackServerContext* context,
                                  const peers::v1::TakesQuestion* question,
                                  peers::v1::TakesReply* reply) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Samples(
      grpc::CallbackServerContext* context) override;

 private:
  [[nodiscard]] grpc::Status Admit(const grpc::CallbackServerContext& context)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] NodeNumber NodeOf(const grpc::CallbackServerContext& context) const
      HEADRACE_LOCKS_REQUIRED(mutex_);

  const Parts parts_;
  std::atomic<std::uint64_t> taken_round_ = 0;
  Mutex mutex_;
  Job job_ HEADRACE_GUARDED_BY(mutex_);
  std::map<NodeNumber, std::uint64_t> processes_ HEADRACE_GUARDED_BY(mutex_);
  Agreement* agreement_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  PlanLedger* ledger_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  std::vector<std::weak_ptr<Served>> served_ HEADRACE_GUARDED_BY(mutex_);
  RoundRobin round_robin_;  // of Sweep()
};

}  // namespace headrace
