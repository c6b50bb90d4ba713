#include "peer/grpc/plan_teller.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"

namespace headrace {

// One call of Compare(). The teller keeps it until it has ended: a call holds its channel, and the
// last reference to a channel must not go on a thread of gRPC.
class PlanTeller::Call final : public grpc::ClientUnaryReactor {
 public:
  Call(PlanTeller& teller, std::shared_ptr<NodeLink> link, NodeNumber node,
       const PlannedSteps& steps)
      : teller_(teller), link_(std::move(link)) {
    context_.AddMetadata(kPeerTokenKey, link_->options().token);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(kCallMs));
    plan_.set_node(node);
    plan_.set_round(steps.round);
    plan_.set_epoch(steps.epoch);
    plan_.set_step(steps.step);
    for (const PlannedSteps::Sums& sums : steps.sums) {
      for (const std::uint64_t sum : sums) plan_.add_sums(sum);
    }
  }

  // Without the teller's lock: it may end on this thread.
  void Begin() {
    link_->stub().async()->Compare(&context_, &plan_, &reply_, this);
    StartCall();
    EndUse();
  }
  void Cancel() { context_.TryCancel(); }
  void OnDone(const grpc::Status& /*status*/) override { EndUse(); }

  // Under the teller's lock.
  [[nodiscard]] bool ended() const { return users_ == 0; }

 private:
  // The call may be gone when this returns.
  void EndUse() {
    MutexLock lock(teller_.mutex_);
    if (--users_ > 0) return;
    const auto of_node = teller_.under_way_.find(link_.get());
    if (--of_node->second == 0) teller_.under_way_.erase(of_node);
    teller_.ended_.NotifyAll();
  }

  PlanTeller& teller_;
  const std::shared_ptr<NodeLink> link_;
  grpc::ClientContext context_;
  peers::v1::Plan plan_;
  peers::v1::CompareReply reply_;
  int users_ = 2;  // Begin() and gRPC
};

PlanTeller::PlanTeller() = default;

PlanTeller::~PlanTeller() { HEADRACE_CHECK(calls_.empty()); }

void PlanTeller::Tell(std::shared_ptr<NodeLink> link, NodeNumber node, const PlannedSteps& steps) {
  Call* call = nullptr;
  {
    MutexLock lock(mutex_);
    const auto of_node = under_way_.find(link.get());
    if (closing_ || (of_node != under_way_.end() && of_node->second >= kCallsMax)) return;
    ++under_way_[link.get()];
    calls_.push_back(std::make_unique<Call>(*this, std::move(link), node, steps));
    call = calls_.back().get();
  }
  call->Begin();
}

void PlanTeller::TakeEnded(Calls& to) {
  for (auto each = calls_.begin(); each != calls_.end();) {
    const auto here = each++;
    if ((*here)->ended()) to.splice(to.end(), calls_, here);
  }
}

void PlanTeller::Sweep() {
  Calls ended;
  MutexLock lock(mutex_);
  TakeEnded(ended);
}

void PlanTeller::Close() {
  Calls ended;
  MutexLock lock(mutex_);
  closing_ = true;
  for (const std::unique_ptr<Call>& call : calls_) {
    if (!call->ended()) call->Cancel();
  }
  while (!under_way_.empty()) ended_.Wait(mutex_);
  TakeEnded(ended);
}

}  // namespace headrace
