#pragma once

// The side of a node that answers others. Seen by peer_node.cc alone: it includes gRPC.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "base/mutex.h"
#include "peer/agreement.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"
#include "peer/plan_ledger.h"
#include "peer/shelf.h"

namespace headrace {

// Serves the calls of other nodes. Before Open() and without the token, every call is refused.
//
// Thread safety: every method may be called from any thread.
// Shutdown: destroy it after the gRPC server.
class PeerService final : public peers::v1::Peers::CallbackService {
 public:
  PeerService(Shelf& shelf, PeerCounters& counters) : shelf_(shelf), counters_(counters) {}

  // From now on calls with `token` are served. `agreement` and `ledger` outlive the service.
  void Open(std::string token, Agreement& agreement, PlanLedger& ledger)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  grpc::ServerReadReactor<peers::v1::AgreePart>* Agree(grpc::CallbackServerContext* context,
                                                       peers::v1::AgreeReply* reply) override;
  grpc::ServerUnaryReactor* Compare(grpc::CallbackServerContext* context,
                                    const peers::v1::Plan* plan,
                                    peers::v1::CompareReply* reply) override;
  grpc::ServerBidiReactor<peers::v1::SampleRequests, peers::v1::SampleAnswers>* Samples(
      grpc::CallbackServerContext* context) override;

 private:
  [[nodiscard]] grpc::Status Admit(const grpc::CallbackServerContext& context)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  Shelf& shelf_;
  PeerCounters& counters_;
  Mutex mutex_;
  std::string token_ HEADRACE_GUARDED_BY(mutex_);
  Agreement* agreement_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  PlanLedger* ledger_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace headrace
